"""What a device could do at most, to measure by: bytes of memory and products of tensor cores in a second."""

from dataclasses import dataclass

import jax

from jaxinfer.gpu_compile.targets import TARGETS
from scripts.on_gpu.settings import Settings

_BFLOAT16_FLOPS = {
    "A10": 125e12,
    "L4": 121e12,
    "L40S": 362e12,
    "A100-40": 312e12,
    "A100-80": 312e12,
    "H100": 989e12,
    "H200": 989e12,
}
"""Multiplications and additions a second, without sparsity: NVIDIA's data sheets, boost clock."""

_UNKNOWN_CACHE = 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """Of one device; None where it is not known.

    Attributes:
        bandwidth: bytes a second of its memory.
        flops: of bfloat16 products with float32 sums, a second.
        cache_bytes: of its L2 cache; a guess, on the large side, where it is not known.
    """

    bandwidth: float | None
    flops: float | None
    cache_bytes: int

    def share_of_bandwidth(self, num_bytes: float, seconds: float) -> float | None:
        """In per cent."""
        return None if self.bandwidth is None else 100 * num_bytes / seconds / self.bandwidth

    def share_of_flops(self, flops: float, seconds: float) -> float | None:
        """In per cent."""
        return None if self.flops is None else 100 * flops / seconds / self.flops


def peaks_of(device_kind: str) -> Peaks:
    """Those of a device that jax calls ``device_kind``."""
    for target in TARGETS.values():
        if target.device_kind == device_kind:
            return Peaks(
                bandwidth=target.memory_bandwidth,
                flops=_BFLOAT16_FLOPS.get(target.name),
                cache_bytes=target.l2_cache_bytes,
            )
    return Peaks(bandwidth=None, flops=None, cache_bytes=_UNKNOWN_CACHE)


def peaks_of_this_device(settings: Settings) -> Peaks:
    """Those of the device that jax runs on.

    Raises:
        RuntimeError: it is a CPU, which is meant for tiny runs only.
    """
    if jax.default_backend() == "cpu" and not settings.tiny:
        raise RuntimeError("jax sees no GPU; --tiny runs on a CPU")
    return peaks_of(jax.devices()[0].device_kind)
