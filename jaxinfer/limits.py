"""The limits of an engine: what the caller asks for, brought together with what the model and the memory allow."""

import logging
from collections.abc import Mapping
from dataclasses import replace

import jax
import numpy as np

from jaxinfer import kv_cache
from jaxinfer.config import EngineConfig, ModelConfig

logger = logging.getLogger(__name__)

_GPU_MEMORY_SHARE = 0.9
"""Share of what XLA may take of the device that weights and cache may fill; the rest is for temporaries."""

_CPU_CACHE_BYTES = 2**30
"""A CPU's cache is bounded by a fixed size: its memory is shared with everything else that the machine does."""


def resolve_limits(
    model: ModelConfig,
    dtype: np.dtype,
    *,
    weight_bytes: int,
    max_model_len: int | None = None,
    num_kv_pages: int | None = None,
    max_num_seqs: int = 32,
    max_chunk_tokens: int = 256,
    page_size: int = 16,
    seed: int = 0,
) -> EngineConfig:
    """The limits that an engine for ``model`` runs with. To be called before the weights are on the device.

    Args:
        model: the shape of the model.
        dtype: of the cache.
        weight_bytes: what the weights take of the device.
        max_model_len: None: the model's, or what the cache holds if that is less (a warning says so).
        num_kv_pages: None: what the memory allows, at most what ``max_num_seqs`` of the longest requests need.
        max_num_seqs, max_chunk_tokens, page_size, seed: as in ``EngineConfig``.

    Raises:
        ValueError: a value is out of range, or the memory cannot hold one sequence of ``max_model_len``.
    """
    asked = EngineConfig(
        max_model_len=model.max_position_embeddings if max_model_len is None else max_model_len,
        max_num_seqs=max_num_seqs,
        max_chunk_tokens=max_chunk_tokens,
        page_size=page_size,
        num_kv_pages=1 if num_kv_pages is None else num_kv_pages,
        seed=seed,
    )
    longest = asked.max_model_len
    if longest > model.max_position_embeddings:
        raise ValueError(f"max_model_len is {longest}; this model takes at most {model.max_position_embeddings} tokens")
    if num_kv_pages is None:
        room = pages_that_fit(model, dtype, page_size, weight_bytes, jax.devices()[0].memory_stats())
        if max_model_len is not None and room < asked.max_pages_per_seq:
            raise ValueError(
                f"max_model_len is {longest}, and the memory holds the keys and values of {room * page_size} tokens; "
                "lower max_model_len, or give num_kv_pages"
            )
        num_kv_pages = min(asked.max_pages_per_seq * max_num_seqs, room)
    held = num_kv_pages * page_size
    if max_model_len is None and held < longest:
        logger.warning("max_model_len is %d instead of %d: the KV cache holds no longer sequence", held, longest)
        longest = held
    return replace(asked, max_model_len=longest, num_kv_pages=num_kv_pages)


def pages_that_fit(
    model: ModelConfig, dtype: np.dtype, page_size: int, weight_bytes: int, memory: Mapping[str, int] | None
) -> int:
    """Pages of the cache for which there is room beside the weights, the dummy page not counted.

    Args:
        model, dtype, page_size, weight_bytes: as above.
        memory: ``bytes_limit`` and ``bytes_in_use`` of the device; None for a CPU, which does not say.

    Raises:
        ValueError: there is no room for a single page.
    """
    room = _CPU_CACHE_BYTES
    if memory is not None:
        room = int(memory["bytes_limit"] * _GPU_MEMORY_SHARE) - memory["bytes_in_use"] - weight_bytes
    page_bytes = kv_cache.bytes_per_token(model, dtype) * page_size
    if room < 2 * page_bytes:
        raise ValueError(
            f"there is room for {room} bytes of KV cache beside the weights, and a page takes {page_bytes}"
        )
    return room // page_bytes - 1
