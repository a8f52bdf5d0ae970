"""Which implementation of attention runs: the one asked for, or the device's."""

from typing import Literal, cast, get_args

from pallas_kernels.device import Device
from pallas_kernels.implementation import pick, why_not_this_gpu

Implementation = Literal["xla", "pallas"]

_MAX_HEAD_DIM = 256
"""The tiles of a larger one would not fit a multiprocessor."""


def pick_implementation(asked: Implementation | None, *, head_dim: int) -> Implementation:
    """The implementation that runs: the one asked for; or on a GPU that it supports the kernel, and ``xla`` elsewhere.

    What None stands for on a GPU is said once in the log.

    Raises:
        ValueError: there is no such implementation.
        NotImplementedError: the kernel was asked for, and does not take this head_dim or this GPU.
    """

    def refusal(implementation: str, device: Device) -> str | None:
        return _why_no_kernel(device, head_dim) if implementation == "pallas" else None

    return cast(Implementation, pick("attention", asked, get_args(Implementation), "pallas", refusal))


def _why_no_kernel(device: Device, head_dim: int) -> str | None:
    if reason := why_not_this_gpu(device):
        return reason
    if head_dim > _MAX_HEAD_DIM:
        return f"the kernel takes a head_dim of at most {_MAX_HEAD_DIM}, and this is {head_dim}"
    return None
