"""Perplexity of a model over one long context, with the KV cache in float32, bfloat16 and INT8.

    python scripts/kv_perplexity.py [--model NAME] [--text FILE] [--tokens 8192] [--chunk 512]

Weights and activations are float32, so the cache is all that differs. The text is read as an engine reads a prompt, in
chunks over pages, but each token's logits are looked at. Prints a table in Markdown.
"""

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32

from jaxinfer import kv_cache
from jaxinfer.kv_cache import KVCache
from jaxinfer.loading import open_model
from jaxinfer.model import Decoder
from jaxinfer.step_inputs import StepInputs, TableInputs

ROOT = Path(__file__).resolve().parents[1]
KV_DTYPES = ("float32", "bfloat16", "int8")
_PAGE_SIZE, _BLOCK_Q = 16, 16


def main() -> None:
    """Measure one cache after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a folder, a GGUF file, a preset or a Hugging Face id")
    text = ROOT.parent / "shared" / "data" / "wikitext2_test.txt"
    parser.add_argument("--text", type=Path, default=text, help="the text, of which the first tokens are taken")
    parser.add_argument("--tokens", type=int, default=8192, help="tokens of the context")
    parser.add_argument("--chunk", type=int, default=512, help=f"tokens of a step, a multiple of {_BLOCK_Q}")
    arguments = parser.parse_args()
    try:
        model, token_ids = load(arguments.model, arguments.text, arguments.tokens)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print("| cache | bytes a token | perplexity | against float32 | s |\n|---|---|---|---|---|")
    of_float32 = math.nan
    for kv_dtype in KV_DTYPES:
        begin = time.perf_counter()
        value = perplexity(model, token_ids, kv_dtype, chunk=arguments.chunk)
        of_float32 = value if kv_dtype == "float32" else of_float32
        num_bytes = kv_cache.bytes_per_token(model.config, jnp.dtype(kv_dtype))
        change, seconds = value / of_float32 - 1, time.perf_counter() - begin
        print(f"| {kv_dtype} | {num_bytes:,} | {value:.4f} | {change:+.3%} | {seconds:.0f} |", flush=True)


def load(model: str | Path, text: Path, num_tokens: int) -> tuple[Decoder, np.ndarray]:
    """A model in float32, and the first ``num_tokens`` tokens of a text.

    Raises:
        ValueError: the model cannot be loaded, has no tokenizer, or takes no such number of tokens; the text is short.
    """
    loaded = open_model(model)
    longest = loaded.config.max_position_embeddings
    if not 2 <= num_tokens <= longest:
        raise ValueError(f"{num_tokens} tokens were asked for; this model takes 2 to {longest}")
    if loaded.tokenizer is None:
        raise ValueError(f"{model} has no tokenizer")
    token_ids = loaded.tokenizer.encode(text.read_text(encoding="utf-8")[: 16 * num_tokens])[:num_tokens]
    if len(token_ids) < num_tokens:
        raise ValueError(f"{text} has {len(token_ids)} tokens, and {num_tokens} were asked for")
    weights = dict(loaded.weights(np.dtype(np.float32), None))
    return Decoder(loaded.config, weights, kernels=None), np.asarray(token_ids, np.int32)


def perplexity(model: Decoder, token_ids: np.ndarray, kv_dtype: str, *, chunk: int) -> float:
    """exp of the mean of -log p(token | those before it), over all tokens but the first.

    Args:
        model: the decoder.
        token_ids: int32, one context.
        kv_dtype: of the cache, which the attention reads.
        chunk: tokens of a step, a multiple of the tile of 16; fewer take less memory.
    """
    num_pages = -(-len(token_ids) // _PAGE_SIZE)
    cache = kv_cache.allocate(
        model.config,
        num_pages=[num_pages] * len(model.config.group_windows),
        page_size=_PAGE_SIZE,
        max_num_seqs=chunk,
        dtype=jnp.dtype(kv_dtype),
    )
    step, log_probs = _step(model), []
    following = np.append(token_ids[1:], 0).astype(np.int32)
    for start in range(0, len(token_ids), chunk):
        piece, targets = (np.resize(ids[start : start + chunk], chunk) for ids in (token_ids, following))
        num_tokens = min(chunk, len(token_ids) - start)
        of_piece, cache = step(cache, _inputs(model, piece, start, num_tokens, num_pages), jnp.asarray(targets))
        log_probs.append(np.asarray(of_piece, np.float64)[:num_tokens])
    return math.exp(-np.concatenate(log_probs)[:-1].mean())


def _step(model: Decoder) -> Callable[[KVCache, StepInputs, Array], tuple[Float[Array, "C"], KVCache]]:
    """The model's step, reduced to the log-probability of each token's successor, so that few logits are kept."""

    def step(cache: KVCache, inputs: StepInputs, targets: Int32[Array, "C"]) -> tuple[Float[Array, "C"], KVCache]:
        logits, cache = model(jnp.zeros(1, jnp.int32), cache, inputs)
        chosen = jnp.take_along_axis(logits, targets[:, None], axis=1)[:, 0]
        return chosen - jax.nn.logsumexp(logits, axis=1), cache

    return jax.jit(step, donate_argnums=0)


def _inputs(model: Decoder, piece: np.ndarray, start: int, num_tokens: int, num_pages: int) -> StepInputs:
    """A step of as many rows as tokens: the first has the pages and brings all of them, row i samples after token i."""
    chunk = len(piece)
    rows, block_start = jnp.zeros(chunk, jnp.int32), np.arange(0, chunk, _BLOCK_Q, dtype=np.int32)
    table = jnp.zeros((chunk, num_pages), jnp.int32).at[0].set(jnp.arange(1, num_pages + 1))
    return StepInputs(
        slot=rows,
        decode_position=rows - 1,
        sample_token=jnp.arange(chunk, 2 * chunk, dtype=jnp.int32),
        chunk_token=jnp.asarray(piece),
        block_row=jnp.zeros(len(block_start), jnp.int32),
        block_start=jnp.asarray(start + block_start),
        block_len=jnp.asarray(np.clip(num_tokens - block_start, 0, _BLOCK_Q)),
        tables=(TableInputs(rows, table),) * len(model.config.group_windows),
    )


if __name__ == "__main__":
    main()
