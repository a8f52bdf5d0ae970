"""Which format a model is taken to write, from its template or from Mistral's vocabulary."""

import pytest

from jaxinfer.tokenizers import load_tokenizer
from jaxinfer.tool_calls import ToolCallFormat, find_format
from jaxinfer.tool_calls.llama3 import LLAMA3
from jaxinfer.tool_calls.mistral import MISTRAL
from jaxinfer.tool_calls.qwen import QWEN
from tests.jaxinfer.tool_calls.vocabulary import byte_tokenizer
from tests.mistral_files import mistral_folder
from tests.published_templates import read_template
from tests.vocabularies import smollm2_path


@pytest.mark.parametrize(
    ("name", "tool_format"),
    [
        ("llama3_1", LLAMA3),
        ("llama3_2", LLAMA3),
        ("qwen2_5", QWEN),
        ("qwen3", QWEN),
        ("qwen3_instruct_2507", QWEN),
        ("qwen3_5_think", None),  # writes its calls as XML
        ("gemma3", None),
        ("phi3", None),
    ],
)
def test_published_templates(name: str, tool_format: ToolCallFormat | None) -> None:
    assert find_format(byte_tokenizer(read_template(name))) is tool_format


def test_llama_3_has_no_tag_and_no_tools() -> None:
    assert find_format(byte_tokenizer(read_template("llama3"), special=["<|eot_id|>"])) is None
    assert find_format(byte_tokenizer(read_template("llama3_1"), special=["<|eot_id|>"])) is None


def test_the_template_decides_before_the_vocabulary() -> None:
    """Hermes 3 is Llama 3.1 with its vocabulary and Qwen's form."""
    assert find_format(byte_tokenizer("{{ tools }}<tool_call>")) is QWEN
    assert find_format(byte_tokenizer("{{ tools }}[TOOL_CALLS]")) is MISTRAL
    assert find_format(byte_tokenizer("{{ messages }}")) is None


@pytest.mark.parametrize(
    ("version", "tool_format"), [("v1", None), ("v2", MISTRAL), ("v3", MISTRAL), ("tekken", MISTRAL)]
)
def test_mistrals_own_vocabularies(version: str, tool_format: ToolCallFormat | None, tmp_path) -> None:
    assert find_format(load_tokenizer(mistral_folder(tmp_path, version))) is tool_format


def test_a_model_without_any_form_has_none(shared_data) -> None:
    assert find_format(load_tokenizer(smollm2_path())) is None
    assert find_format(load_tokenizer(shared_data / "stories260K-hf")) is None
