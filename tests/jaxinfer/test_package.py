"""What ``import jaxinfer`` offers."""

import pytest

import jaxinfer
from jaxinfer.llm import LLM
from jaxinfer.logprobs import Logprob
from jaxinfer.output_filter import FilteredText, OutputFilter
from jaxinfer.outputs import RequestOutput, ToolCall
from jaxinfer.quality import Comparison, compare_quality
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.structured_outputs.params import StructuredOutputsParams


def test_the_names_that_programs_need_are_in_the_package():
    offered = {
        "LLM": LLM,
        "Comparison": Comparison,
        "FilteredText": FilteredText,
        "Logprob": Logprob,
        "OutputFilter": OutputFilter,
        "RequestOutput": RequestOutput,
        "SamplingParams": SamplingParams,
        "StructuredOutputsParams": StructuredOutputsParams,
        "ToolCall": ToolCall,
        "compare_quality": compare_quality,
    }
    assert jaxinfer.__all__ == list(offered)
    assert {name: getattr(jaxinfer, name) for name in offered} == offered


def test_another_name_is_an_attribute_error_as_in_any_module():
    with pytest.raises(AttributeError, match="has no attribute 'Engine'"):
        jaxinfer.Engine  # noqa: B018
