"""Which device a program is being traced for: a real one, or a GPU that is only described.

Compiling for a GPU that is not there puts an abstract device into the mesh; tile sizes and the choice of an
implementation must follow that one, not the machine that compiles.
"""

from dataclasses import dataclass

import jax

_GPU_PLATFORMS = ("gpu", "cuda", "rocm")


@dataclass(frozen=True, kw_only=True)
class Device:
    """What kernels need to know of a device.

    Attributes:
        platform: ``cpu``, ``gpu`` or another of jax's.
        kind: its name, such as ``NVIDIA A10``.
        num_cores: streaming multiprocessors of a GPU; 1 elsewhere.
        compute_capability: (major, minor) of an NVIDIA GPU, or None where it is not known.
    """

    platform: str
    kind: str
    num_cores: int
    compute_capability: tuple[int, int] | None

    @property
    def is_gpu(self) -> bool:
        """Whether GPU kernels can be compiled for it."""
        return self.platform == "gpu"


def current_device() -> Device:
    """The device that the surrounding trace is for: the mesh's abstract one, else the first real one."""
    device = jax.sharding.get_abstract_mesh().abstract_device or jax.devices()[0]
    return Device(
        platform="gpu" if device.platform in _GPU_PLATFORMS else device.platform,
        kind=device.device_kind,
        num_cores=getattr(device, "num_cores", None) or getattr(device, "core_count", None) or 1,
        compute_capability=_compute_capability(getattr(device, "compute_capability", None)),
    )


def _compute_capability(text: object) -> tuple[int, int] | None:
    """``8.6`` as (8, 6); None for what is no such text (ROCm names an architecture)."""
    major, dot, minor = str(text).partition(".")
    return (int(major), int(minor)) if dot and major.isdigit() and minor.isdigit() else None
