"""GPUs that are only described, for tests of what depends on the device."""

from contextlib import AbstractContextManager

from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh

from pallas_kernels.device import Device

A10 = Device(platform="gpu", kind="NVIDIA A10", num_cores=72, compute_capability=(8, 6))
A100 = Device(platform="gpu", kind="NVIDIA A100-SXM4-80GB", num_cores=108, compute_capability=(8, 0))
H100 = Device(platform="gpu", kind="NVIDIA H100 80GB HBM3", num_cores=132, compute_capability=(9, 0))


def tracing_for(device: AbstractDevice) -> AbstractContextManager:
    """Where whatever is traced is for that device."""
    return use_abstract_mesh(AbstractMesh((1,), ("x",), axis_types=(AxisType.Auto,), abstract_device=device))


def described(kind: str, capability: str | None = None) -> AbstractDevice:
    """A GPU of that name with 72 multiprocessors, which tells its compute capability or does not."""
    if capability is None:
        return AbstractDevice(device_kind=kind, num_cores=72, platform="gpu")

    class Telling(AbstractDevice):
        compute_capability = capability

    return Telling(device_kind=kind, num_cores=72, platform="gpu")
