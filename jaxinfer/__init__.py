"""jaxinfer: an inference engine for open-weight language models of the Mistral family in JAX.

``from jaxinfer import LLM, SamplingParams`` is all that most programs need. The names are imported when they are asked
for: importing any module of the package runs this one first, and the host's modules and ``--help`` do without jax.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxinfer.llm import LLM
    from jaxinfer.logprobs import Logprob
    from jaxinfer.output_filter import FilteredText, OutputFilter
    from jaxinfer.outputs import RequestOutput, ToolCall
    from jaxinfer.quality import Comparison, compare_quality
    from jaxinfer.sampling_params import SamplingParams
    from jaxinfer.structured_outputs.params import StructuredOutputsParams

__all__ = [
    "LLM",
    "Comparison",
    "FilteredText",
    "Logprob",
    "OutputFilter",
    "RequestOutput",
    "SamplingParams",
    "StructuredOutputsParams",
    "ToolCall",
    "compare_quality",
]

_MODULES = {
    "LLM": "jaxinfer.llm",
    "Comparison": "jaxinfer.quality",
    "FilteredText": "jaxinfer.output_filter",
    "Logprob": "jaxinfer.logprobs",
    "OutputFilter": "jaxinfer.output_filter",
    "RequestOutput": "jaxinfer.outputs",
    "SamplingParams": "jaxinfer.sampling_params",
    "StructuredOutputsParams": "jaxinfer.structured_outputs.params",
    "ToolCall": "jaxinfer.outputs",
    "compare_quality": "jaxinfer.quality",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name == "__version__":
        return version("jaxinfer")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
