"""Logits at every position of a text, through the model's own step: the forward pass with a sample row for each token.

The engine samples after the last token of a row only. Here each row samples at one token of the chunk, so that the same
decoder, cache and attention can be compared with an oracle position by position, whole or in chunks.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxinfer import kv_cache
from jaxinfer.kv_cache import KVCache
from jaxinfer.model import Decoder
from jaxinfer.step_inputs import StepInputs, TableInputs


def prefill_logits(
    model: Decoder,
    token_ids: np.ndarray,
    *,
    chunk: int,
    page_size: int = 16,
    block_q: int | None = None,
    drop_pages: bool = False,
) -> np.ndarray:
    """float32 [T, V]: the logits after each token, computed in chunks of ``chunk`` tokens over one paged cache.

    The pages are handed out in a shuffled order, and the pages that hold nothing are NaN. With ``drop_pages`` (for a
    model whose layers all have a window) each chunk's table begins at the first page that the widest window reads from
    the chunk's first token; those before it have left the table and are NaN again.
    """
    block_q = block_q or chunk
    num_pages, num_groups = -(-len(token_ids) // page_size), len(model.config.group_windows)
    cache = kv_cache.allocate(
        model.config,
        num_pages=[num_pages] * num_groups,
        page_size=page_size,
        max_num_seqs=chunk,
        dtype=jnp.dtype(jnp.float32),
    )
    cache = _blanked(cache, np.arange(1 + num_pages))
    table = np.random.default_rng(0).permutation(num_pages).astype(np.int32) + 1
    step = jax.jit(lambda cache, inputs: model(jnp.zeros(1, jnp.int32), cache, inputs))
    logits = []
    for start in range(0, len(token_ids), chunk):
        piece = token_ids[start : start + chunk]
        first_page = max(0, start + 1 - max(model.config.windows)) // page_size if drop_pages else 0
        cache = _blanked(cache, table[:first_page])
        piece_logits, cache, _ = step(cache, _inputs(piece, start, table, first_page, chunk, block_q, num_groups))
        logits.append(np.asarray(piece_logits)[: len(piece)])
    return np.concatenate(logits)


def _blanked(cache: KVCache, pages: np.ndarray) -> KVCache:
    """The cache with NaN in the given pages."""
    layers = (dataclasses.replace(layer, pages=layer.pages.at[pages].set(jnp.nan)) for layer in cache.layers)
    return dataclasses.replace(cache, layers=tuple(layers))


def _inputs(
    piece: np.ndarray, start: int, table: np.ndarray, first_page: int, chunk: int, block_q: int, num_groups: int
) -> StepInputs:
    """``chunk`` rows: the first has the pages from ``first_page`` on, and row i samples after token i of the chunk."""
    rows = np.zeros(chunk, np.int32)
    tables = np.zeros((chunk, len(table)), np.int32)
    tables[0, : len(table) - first_page] = table[first_page:]
    block_start = np.arange(0, chunk, block_q, dtype=np.int32)
    return StepInputs(
        slot=jnp.asarray(rows),
        decode_position=jnp.asarray(rows - 1),
        sample_token=jnp.arange(chunk, 2 * chunk, dtype=jnp.int32),
        chunk_token=jnp.asarray(np.pad(piece, (0, chunk - len(piece))).astype(np.int32)),
        block_row=jnp.zeros(len(block_start), jnp.int32),
        block_start=jnp.asarray(start + block_start),
        block_len=jnp.asarray(np.clip(len(piece) - block_start, 0, block_q).astype(np.int32)),
        tables=(TableInputs(jnp.asarray(rows).at[0].set(first_page), jnp.asarray(tables)),) * num_groups,
    )


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities over the last axis, in float64."""
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
