"""Which implementation of the product runs: the one asked for, or the device's."""

from typing import Literal, cast, get_args

from pallas_kernels.device import Device
from pallas_kernels.implementation import pick, why_not_this_gpu
from pallas_kernels.quantized_matmul.jax_triton_gpu.launch import why_not as why_not_triton

Implementation = Literal["xla", "pallas", "triton"]


def pick_implementation(asked: Implementation | None) -> Implementation:
    """The implementation that runs: the one asked for; or on a GPU that it supports the kernel, and ``xla`` elsewhere.

    What None stands for on a GPU is said once in the log.

    Raises:
        ValueError: there is no such implementation.
        NotImplementedError: the one asked for does not take this device, or is not installed.
    """
    return cast(Implementation, pick("matrix products", asked, get_args(Implementation), "pallas", _refusal))


def _refusal(implementation: str, device: Device) -> str | None:
    match implementation:
        case "pallas":
            return why_not_this_gpu(device)
        case "triton":
            return why_not_triton(device) or why_not_this_gpu(device)
        case _:
            return None
