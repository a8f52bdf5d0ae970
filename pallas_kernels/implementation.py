"""Which implementation of an operation runs: the one asked for, or the device's."""

import logging
from collections.abc import Callable, Sequence
from functools import cache as once

from pallas_kernels.device import Device, current_device

logger = logging.getLogger(__name__)

_OLDEST_GPU = (8, 0)
"""Compute capability from which the kernels' products and asynchronous copies exist."""

Refusal = Callable[[str, Device], str | None]
"""Why an implementation does not take a problem on a device; None where it does."""


def pick(operation: str, asked: str | None, known: Sequence[str], default: str, refusal: Refusal) -> str:
    """The implementation that runs: the one asked for; or on a GPU that it supports ``default``, and ``xla`` elsewhere.

    What None stands for on a GPU is said once in the log.

    Args:
        operation: its name, for the log.
        asked: one of ``known``, or None.
        known: the names of all.
        default: the one for GPUs.
        refusal: what an implementation does not take.

    Raises:
        ValueError: there is no such implementation.
        NotImplementedError: the one asked for does not take the problem or this GPU.
    """
    if asked is not None and asked not in known:
        raise ValueError(f"implementation is {asked!r}; known are {', '.join(known)}")
    device = current_device()
    if asked is not None:
        if reason := refusal(asked, device):
            raise NotImplementedError(reason)
        return asked
    if not device.is_gpu:
        return "xla"
    reason = refusal(default, device)
    _say(operation, device, reason)
    return "xla" if reason else default


def why_not_this_gpu(device: Device) -> str | None:
    """Why no GPU kernel runs on the device; None where they do, or are interpreted."""
    if device.compute_capability is None or device.compute_capability >= _OLDEST_GPU:
        return None
    oldest, own = (".".join(map(str, capability)) for capability in (_OLDEST_GPU, device.compute_capability))
    return f"the kernel needs compute capability {oldest}, and this GPU has {own}"


@once
def _say(operation: str, device: Device, reason: str | None) -> None:
    if reason:
        logger.warning("%s on %s: the portable implementation, since %s", operation, device.kind, reason)
    else:
        logger.info("%s on %s: the GPU kernel", operation, device.kind)
