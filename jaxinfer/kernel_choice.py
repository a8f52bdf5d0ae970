"""Which implementation of its kernels an engine runs: settled once, when it is built, and said in the log."""

import logging
from typing import Literal, cast, get_args

from jaxinfer.config import ModelConfig
from pallas_kernels.device import current_device
from pallas_kernels.paged_attention import Implementation, pick_implementation

logger = logging.getLogger(__name__)

Kernels = Literal["auto", "xla", "pallas"]


def choose_kernels(asked: str, model: ModelConfig) -> Implementation | None:
    """What runs where ``asked`` was asked for.

    Args:
        asked: ``xla``, ``pallas``, or ``auto``: the GPU kernels on a GPU that they support, ``xla`` elsewhere.
        model: the shape of the model.

    Returns:
        The implementation of every operation; None: each operation takes the best of its GPU kernels.

    Raises:
        ValueError: ``asked`` is none of these, or it is ``pallas`` and they do not take this model or this GPU.
    """
    if asked not in get_args(Kernels):
        raise ValueError(f"kernels is {asked!r}; it must be 'auto', 'xla' or 'pallas'")
    try:
        implementation = pick_implementation(
            None if asked == "auto" else cast(Implementation, asked), head_dim=model.head_dim
        )
    except NotImplementedError as error:
        raise ValueError(f"kernels is {asked!r}, and {error}") from error
    device = current_device()
    logger.info("kernels on %s: %s", device.kind, implementation)
    if implementation == "pallas" and not device.is_gpu:
        logger.warning("kernels is 'pallas' on a %s: the GPU kernels are interpreted, which is slow", device.platform)
    # Products ask no more of a GPU than attention does.
    return None if asked == "auto" and implementation == "pallas" else implementation
