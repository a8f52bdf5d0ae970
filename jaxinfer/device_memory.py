"""How many bytes of the device the KV cache may take."""

import os
import reprlib
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
        memory_fraction: the share, in (0, 1], that weights and cache together may take of what XLA takes of a GPU
            (three quarters is JAX's default), or of a CPU's memory; None: 0.9 on a GPU, and 1 GiB for the cache on a
            CPU.
        gpu_memory: ``bytes_limit`` and ``bytes_in_use`` as ``jax.Device.memory_stats`` has them; None for a CPU, which
            does not say.

    Raises:
        ValueError: the fraction is out of range.
    """
    if memory_fraction is not None:
        is_number = isinstance(memory_fraction, float | int) and not isinstance(memory_fraction, bool)
        if not is_number or not 0 < memory_fraction <= 1:
            raise ValueError(f"memory_fraction is {reprlib.repr(memory_fraction)}; it must be a number in (0, 1]")
    if gpu_memory is not None:
        share = _GPU_FRACTION if memory_fraction is None else memory_fraction
        return int(gpu_memory["bytes_limit"] * share) - gpu_memory["bytes_in_use"] - weight_bytes
    if memory_fraction is None:
        return _CPU_CACHE_BYTES
    return int(cpu_memory() * memory_fraction) - weight_bytes


def cpu_memory() -> int:
    """Bytes of the machine, or of the container where that has fewer."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *container_limits(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))])


def container_limits(root: Path, own: Path) -> list[int]:
    """Limits in bytes of the Linux cgroups (version 2) that a process is in; none where there is none.

    Args:
        root: the folder under which the groups lie.
        own: the file whose line ``0::/path`` names the process's group.
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    paths = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
    within = [folder for path in paths for folder in (root / path, *(root / path).parents)]
    folders = [folder for folder in within if folder.is_relative_to(root)]
    return [int(limit) for folder in folders if (limit := _read(folder / "memory.max")).isdecimal()]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()  # "max": no limit
    except OSError:
        return ""
