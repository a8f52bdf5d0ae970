"""Which implementation of attention runs: the one asked for, or the device's."""

import logging
from functools import cache as once
from typing import Literal, get_args

from pallas_kernels.device import Device, current_device

logger = logging.getLogger(__name__)

Implementation = Literal["xla", "pallas"]

_OLDEST_GPU = (8, 0)
"""Compute capability from which the kernel's products and asynchronous copies exist."""

_MAX_HEAD_DIM = 256
"""The tiles of a larger one would not fit a multiprocessor."""


def pick_implementation(asked: Implementation | None, *, head_dim: int) -> Implementation:
    """The implementation that runs: the one asked for; or on a GPU that it supports the kernel, and ``xla`` elsewhere.

    What None stands for on a GPU is said once in the log.

    Raises:
        ValueError: there is no such implementation.
        NotImplementedError: the kernel was asked for, and does not take this head_dim or this GPU.
    """
    if asked is not None and asked not in get_args(Implementation):
        raise ValueError(f"implementation is {asked!r}; known are {', '.join(get_args(Implementation))}")
    if asked == "pallas" and (reason := _why_no_kernel(current_device(), head_dim)):
        raise NotImplementedError(reason)
    return asked or _pick_for(current_device(), head_dim)


@once
def _pick_for(device: Device, head_dim: int) -> Implementation:
    if not device.is_gpu:
        return "xla"
    if reason := _why_no_kernel(device, head_dim):
        logger.warning("attention on %s: the portable implementation, since %s", device.kind, reason)
        return "xla"
    logger.info("attention on %s: the GPU kernel", device.kind)
    return "pallas"


def _why_no_kernel(device: Device, head_dim: int) -> str | None:
    if device.compute_capability is not None and device.compute_capability < _OLDEST_GPU:
        oldest, own = (".".join(map(str, capability)) for capability in (_OLDEST_GPU, device.compute_capability))
        return f"the kernel needs compute capability {oldest}, and this GPU has {own}"
    if head_dim > _MAX_HEAD_DIM:
        return f"the kernel takes a head_dim of at most {_MAX_HEAD_DIM}, and this is {head_dim}"
    return None
