"""The model of a command: loaded with a bar for the wait, and its faults told in a line."""

from typing import TYPE_CHECKING, Any

from jaxinfer.cli.exits import DEVICE_FAILED, ended_by
from jaxinfer.cli.progress import ProgressBar

if TYPE_CHECKING:
    from jaxinfer.llm import LLM


def load(model: str, **settings: Any) -> "LLM":
    """The model with the given arguments of ``LLM``, which checks them.

    Raises:
        ValueError: as ``LLM``.
        typer.Exit: a GPU kernel fails its test.
    """
    # These import jax, which takes a second that --help need not.
    from jaxinfer.kernel_self_test import KernelSelfTestError
    from jaxinfer.llm import LLM

    with ProgressBar("Compiling") as bar, ended_by(KernelSelfTestError, DEVICE_FAILED):
        return LLM(model, progress=bar.update, **settings)
