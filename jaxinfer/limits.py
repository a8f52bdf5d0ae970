"""The limits of an engine: what the caller asks for, brought together with what the model and the memory allow."""

import logging
from bisect import bisect_right
from dataclasses import replace

import jax
import numpy as np

from jaxinfer import kv_cache, slot_state
from jaxinfer.config import CacheMode, EngineConfig, ModelConfig
from jaxinfer.device_memory import room_for_cache

logger = logging.getLogger(__name__)

_UNADDRESSABLE = range(2**31, 2**32 + 1)
"""Sizes of an int8 array that the GPU compiler's offsets do not reach: see ``pallas_gpu.launch`` of the attention."""


def resolve_limits(
    model: ModelConfig,
    kv_dtype: np.dtype,
    *,
    weight_bytes: int,
    max_model_len: int | None = None,
    num_kv_pages: int | None = None,
    memory_fraction: float | None = None,
    max_num_seqs: int = 32,
    max_chunk_tokens: int = 256,
    page_size: int = 16,
    prefix_cache: bool = True,
    cache: CacheMode = "paged",
    seed: int = 0,
) -> EngineConfig:
    """The limits that an engine for ``model`` runs with. To be called before the weights are on the device.

    Args:
        model: the shape of the model.
        kv_dtype: of the cache.
        weight_bytes: what the weights take of the device.
        max_model_len: None: the model's, or what the cache holds if that is less (a warning says so).
        num_kv_pages: None: what the memory allows, at most what ``max_num_seqs`` of the longest requests need.
        memory_fraction: as in ``room_for_cache``; not used where ``num_kv_pages`` is given.
        max_num_seqs, max_chunk_tokens, page_size, prefix_cache, cache, seed: as in ``EngineConfig``.

    Raises:
        ValueError: a value is out of range, or the cache cannot hold one sequence of ``max_model_len``.
    """
    asked = EngineConfig(
        max_model_len=model.max_position_embeddings if max_model_len is None else max_model_len,
        max_num_seqs=max_num_seqs,
        max_chunk_tokens=max_chunk_tokens,
        page_size=page_size,
        num_kv_pages=1 if num_kv_pages is None else num_kv_pages,
        windows=model.group_windows,
        prefix_cache=prefix_cache,
        cache=cache,
        seed=seed,
    )
    longest = asked.max_model_len
    if longest > model.max_position_embeddings:
        raise ValueError(f"max_model_len is {longest}; this model takes at most {model.max_position_embeddings} tokens")
    memory = jax.devices()[0].memory_stats()
    fixed_bytes = weight_bytes + slot_state.num_bytes(max_num_seqs, model.vocab_size)
    room = room_for_cache(fixed_bytes, memory_fraction, memory)
    is_gpu = memory is not None
    limits = asked
    if num_kv_pages is None:
        fits = _longest_that_fits(asked, model, kv_dtype, room, weight_bytes)
        if max_model_len is not None and fits < longest:
            raise ValueError(
                f"max_model_len is {longest}, and the memory holds the keys and values of {fits} tokens; "
                "lower max_model_len, or give num_kv_pages"
            )
        limits = _with_all_pages(replace(asked, max_model_len=fits), model, kv_dtype, room, is_gpu)
    if limits.least_pages(limits.max_model_len)[0] > limits.num_kv_pages:
        held = limits.num_kv_pages * page_size
        if max_model_len is not None:
            raise ValueError(
                f"max_model_len is {longest}, and num_kv_pages {limits.num_kv_pages} holds {held} tokens; "
                "lower max_model_len or raise num_kv_pages"
            )
        limits = replace(limits, max_model_len=held)
    if limits.max_model_len < longest:
        logger.warning(
            "max_model_len is %d instead of %d: the KV cache holds no longer sequence", limits.max_model_len, longest
        )
    if is_gpu:
        _check_addressable(limits, model, kv_dtype)
    logger.info("%s", describe_pool(limits, model, kv_dtype))
    return limits


def cache_bytes(limits: EngineConfig, model: ModelConfig, kv_dtype: np.dtype) -> int:
    """Bytes of the pages of all layers, the dummy pages included."""
    num_pages = sum(1 + limits.group_pages[group] for group in model.layer_groups)
    return num_pages * limits.page_size * kv_cache.layer_bytes_per_token(model, kv_dtype)


def describe_pool(limits: EngineConfig, model: ModelConfig, kv_dtype: np.dtype) -> str:
    """What the cache holds, in a line for the user."""
    size = limits.page_size
    groups = (
        f"{pages:,} pages of {size} tokens hold {pages * size:,} tokens"
        + ("" if window is None else f" (window {window:,}: at most {width * size:,} of a request)")
        for window, pages, width in zip(limits.windows, limits.group_pages, limits.table_widths, strict=True)
    )
    gib = cache_bytes(limits, model, kv_dtype) / 2**30
    return f"KV cache, {kv_dtype.name}, {gib:.2f} GiB: " + "; ".join(groups)


def _longest_that_fits(
    asked: EngineConfig, model: ModelConfig, kv_dtype: np.dtype, room: int, weight_bytes: int
) -> int:
    """Tokens of the longest sequence, up to the one asked for, that has room if it is the only one.

    Raises:
        ValueError: there is no room for a single page.
    """

    def bytes_of_one(length: int) -> int:
        limits = replace(asked, max_model_len=length)
        return cache_bytes(replace(limits, num_kv_pages=limits.least_pages(length)[0]), model, kv_dtype)

    longest = bisect_right(range(1, asked.max_model_len + 1), room, key=bytes_of_one)
    if longest == 0:
        num_slots, state_bytes = asked.max_num_seqs + 1, slot_state.num_bytes(asked.max_num_seqs, model.vocab_size)
        raise ValueError(
            f"there is room for {max(room, 0)} bytes of KV cache beside the weights, which take {weight_bytes}, and "
            f"the state for bias and penalties, which takes {state_bytes} ({state_bytes // num_slots} for each of "
            f"max_num_seqs {asked.max_num_seqs}, and for padding); a page and the dummy page take {bytes_of_one(1)}"
        )
    return longest


def _with_all_pages(
    asked: EngineConfig, model: ModelConfig, kv_dtype: np.dtype, room: int, is_gpu: bool
) -> EngineConfig:
    """With as many pages as there is room for, and as the largest number of the longest requests need."""
    most = asked.table_widths[0] * asked.max_num_seqs

    def with_pages(num_pages: int) -> EngineConfig:
        return replace(asked, num_kv_pages=num_pages)

    num_pages = bisect_right(range(1, most + 1), room, key=lambda n: cache_bytes(with_pages(n), model, kv_dtype))
    if is_gpu and any(size in _UNADDRESSABLE for size in _int8_arrays(with_pages(num_pages), model, kv_dtype)):
        largest, counts = _UNADDRESSABLE.start - 1, range(1, num_pages + 1)
        num_pages = bisect_right(counts, largest, key=lambda n: max(_int8_arrays(with_pages(n), model, kv_dtype)))
    return with_pages(num_pages)


def _check_addressable(limits: EngineConfig, model: ModelConfig, kv_dtype: np.dtype) -> None:
    for size in _int8_arrays(limits, model, kv_dtype):
        if size in _UNADDRESSABLE:
            raise ValueError(
                f"num_kv_pages is {limits.num_kv_pages}, which makes {size} bytes of int8 in a layer; "
                f"a GPU reaches fewer than {_UNADDRESSABLE.start} or more than {_UNADDRESSABLE[-1]}"
            )


def _int8_arrays(limits: EngineConfig, model: ModelConfig, kv_dtype: np.dtype) -> tuple[int, ...]:
    """For each cache group the bytes of a layer's pages; none with a cache of another dtype."""
    if kv_dtype != np.int8:
        return ()
    page_bytes = limits.page_size * 2 * model.num_kv_heads * model.head_dim
    return tuple((1 + num_pages) * page_bytes for num_pages in limits.group_pages)
