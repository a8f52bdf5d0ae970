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
        compute_capability: (major, minor) of an NVIDIA GPU, (0, 0) of another maker's; None where the device does not
            say, as one that is only described.
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
    """The device that the surrounding trace is for: jax's default one, unless the mesh describes another."""
    real = _default_device()
    described = jax.sharding.get_abstract_mesh().abstract_device
    # One of the same kind only mirrors the real one, which says more of itself.
    device = real if described is None or described.device_kind == real.device_kind else described
    return Device(
        platform="gpu" if device.platform in _GPU_PLATFORMS else device.platform,
        kind=device.device_kind,
        num_cores=getattr(device, "num_cores", None) or getattr(device, "core_count", None) or 1,
        compute_capability=_compute_capability(getattr(device, "compute_capability", None)),
    )


def _default_device() -> jax.Device:
    chosen = jax.config.jax_default_device
    if chosen is None:
        return jax.devices()[0]
    return jax.devices(chosen)[0] if isinstance(chosen, str) else chosen


def _compute_capability(text: str | None) -> tuple[int, int] | None:
    """``8.6`` as (8, 6); (0, 0) for what is no such text (ROCm names an architecture)."""
    if text is None:
        return None
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)
