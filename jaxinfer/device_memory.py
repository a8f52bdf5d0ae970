"""How many bytes of the device the KV cache may take."""

import os
from collections.abc import Mapping
from pathlib import Path

_GPU_FRACTION = 0.9
"""Of what XLA may take of a GPU, weights and cache together; the rest is for temporaries."""

_CPU_CACHE_BYTES = 2**30
"""Of a CPU, whose memory is shared with all that the machine does, unless a fraction is asked for."""


def room_for_cache(weight_bytes: int, memory_fraction: float | None, gpu_memory: Mapping[str, int] | None) -> int:
    """Bytes that are left for the cache beside the weights, which may be less than nothing.

    Args:
        weight_bytes: what the weights will take.
        memory_fraction: the share of the memory, in (0, 1], that weights and cache together may take; None: 0.9 of a
            GPU's, and 1 GiB for the cache on a CPU.
        gpu_memory: ``bytes_limit`` and ``bytes_in_use`` as ``jax.Device.memory_stats`` has them; None for a CPU, which
            does not say.

    Raises:
        ValueError: the fraction is out of range.
    """
    if memory_fraction is not None:
        is_number = isinstance(memory_fraction, float | int) and not isinstance(memory_fraction, bool)
        if not is_number or not 0 < memory_fraction <= 1:
            raise ValueError(f"memory_fraction is {memory_fraction!r}; it must be a number in (0, 1]")
    if gpu_memory is not None:
        share = _GPU_FRACTION if memory_fraction is None else memory_fraction
        return int(gpu_memory["bytes_limit"] * share) - gpu_memory["bytes_in_use"] - weight_bytes
    if memory_fraction is None:
        return _CPU_CACHE_BYTES
    return int(_cpu_memory() * memory_fraction) - weight_bytes


def _cpu_memory(cgroup: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Bytes of the machine, or of the container where that has fewer (Linux cgroups, version 2)."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(machine, int(cgroup.read_text()))
    except (OSError, ValueError):  # no cgroups, or "max"
        return machine
