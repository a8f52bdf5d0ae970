"""The model of a command: opened, then loaded with a bar for the wait, and its faults told in a line."""

from typing import TYPE_CHECKING, Any, cast

from jaxinfer.cli.exits import DEVICE_FAILED, ended_by
from jaxinfer.cli.progress import ProgressBar

if TYPE_CHECKING:
    from jaxinfer.llm import LLM
    from jaxinfer.loading import LoadedModel, LoadFormat
    from jaxinfer.sampling_params import SamplingParams


def open_model(model: str, load_format: str = "auto") -> "LoadedModel":
    """Everything of a model but its weights, for a command to look at before it waits for them.

    Raises:
        ValueError: as ``jaxinfer.loading.open_model``.
    """
    from jaxinfer import loading  # imports jax, which takes a second that --help need not

    return loading.open_model(model, load_format=cast("LoadFormat", load_format))


def check_form(params: "SamplingParams", opened: "LoadedModel") -> None:
    """Refuse a form of answers that cannot be held, before the wait for the weights.

    Raises:
        ValueError: as ``jaxinfer.structured_outputs.grammar.check_form``.
    """
    from jaxinfer.structured_outputs import grammar

    if params.structured_outputs is not None:
        grammar.check_form(params.structured_outputs, opened.config.vocab_size)


def load(opened: "LoadedModel", **settings: Any) -> "LLM":
    """The model with the given arguments of ``LLM``, which checks them.

    Raises:
        ValueError: as ``LLM``.
        typer.Exit: a GPU kernel fails its test.
    """
    from jaxinfer.kernel_self_test import KernelSelfTestError
    from jaxinfer.llm import LLM

    with ProgressBar("Compiling") as bar, ended_by(KernelSelfTestError, DEVICE_FAILED):
        return LLM(opened, progress=bar.update, **settings)
