"""The limits of two models that are on one device and read the same windows side by side.

Each engine by itself would take the memory that it finds, and the second would find none. So what both take is settled
before the weights of the first are read.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

import jax

from jaxinfer import slot_state
from jaxinfer.config import EngineConfig, ModelConfig
from jaxinfer.device_memory import cpu_memory, room_for_cache
from jaxinfer.limits import cache_bytes
from jaxinfer.loading import Numbers
from jaxinfer.scoring import resolve_windows
from jaxinfer.value_checks import check_int

USUAL_WINDOW = 2048
"""Tokens: as others read texts to compare models, and few enough for two caches of a 7B model."""


def resolve_pair_window(window: int | None, max_model_len: int | None, models: Sequence[ModelConfig]) -> int:
    """Tokens of a window: as asked for, or as many as are usual and all models take.

    Args:
        window: None: the least of ``USUAL_WINDOW``, ``max_model_len`` and the models' lengths.
        max_model_len: what a window must not exceed; None: the models' lengths alone.
        models: what reads it.

    Raises:
        ValueError: a value is out of range.
    """
    longest = min(model.max_position_embeddings for model in models)
    if max_model_len is not None:
        check_int(
            "max_model_len", max_model_len, f"a whole number in [2, {longest}], which both models take", 2, longest
        )
        longest = max_model_len
    length, _ = resolve_windows(min(USUAL_WINDOW, longest) if window is None else window, None, longest)
    return length


def resolve_pair_pages(
    limits: EngineConfig, models: Sequence[tuple[ModelConfig, Numbers]], memory_fraction: float | None
) -> int:
    """Pages of the cache of each model: what the memory allows beside the weights of all, and no more than are used.

    To be called before any weights are on the device.

    Args:
        limits: of each, but for ``num_kv_pages``; ``max_model_len`` is the window.
        models: the shapes, the model first and the reference second, and in which numbers they are held.
        memory_fraction: as in ``room_for_cache``, for all weights and caches together; None: on a CPU as much cache for
            each as an engine takes, within the memory that there is.

    Raises:
        ValueError: the fraction is out of range, or weights and caches of one window do not fit.
    """

    def bytes_of(num_pages: int) -> int:
        held = replace(limits, num_kv_pages=num_pages)
        return sum(cache_bytes(held, model, numbers.kv_dtype) for model, numbers in models)

    room = _room(limits, models, memory_fraction)
    needed = bytes_of(limits.least_pages(limits.max_model_len)[0])
    if needed > room:
        weights = [_gib(numbers.weight_bytes) for _, numbers in models]
        raise ValueError(
            f"the weights take {weights[0]} (model) and {weights[1]} (reference), and the memory has room for "
            f"{_gib(max(room, 0))} beside them, where the two caches take {_gib(needed)} for a window of "
            f"{limits.max_model_len} tokens; give a smaller window (--window), or hold the models in fewer bits "
            "(--quantization, --against-quantization)"
        )
    most = limits.table_widths[0] * limits.max_num_seqs
    return bisect_right(range(1, most + 1), room, key=bytes_of)


def _room(limits: EngineConfig, models: Sequence[tuple[ModelConfig, Numbers]], memory_fraction: float | None) -> int:
    """Bytes for the caches of all models, which may be less than nothing."""
    fixed_bytes = sum(
        numbers.weight_bytes + slot_state.num_bytes(limits.max_num_seqs, model.vocab_size) for model, numbers in models
    )
    gpu_memory = jax.devices()[0].memory_stats()
    if gpu_memory is None and memory_fraction is None:
        usual = len(models) * room_for_cache(0, None, None)
        return min(usual, cpu_memory() - fixed_bytes)
    return room_for_cache(fixed_bytes, memory_fraction, gpu_memory)


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"
