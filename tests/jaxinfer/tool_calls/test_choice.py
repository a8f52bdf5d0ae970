"""Which format a model is taken to write, from what its form of a conversation makes of a call."""

import pytest

from jaxinfer.tokenizers import load_tokenizer
from jaxinfer.tool_calls import ToolCallFormat, find_format
from jaxinfer.tool_calls.llama3 import LLAMA3
from jaxinfer.tool_calls.mistral import MISTRAL
from jaxinfer.tool_calls.qwen import QWEN
from tests.jaxinfer.tool_calls.vocabulary import byte_tokenizer
from tests.mistral_files import mistral_folder
from tests.published_templates import read_template, template_names
from tests.vocabularies import smollm2_path

LLAMA3_TEMPLATES = {"llama3_1", "llama3_2"}
QWEN_TEMPLATES = {
    name + ending for name in ("qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_vl") for ending in ("", "_training")
}


@pytest.mark.parametrize("name", template_names())
def test_published_templates(name: str) -> None:
    """All others have no place for tools, or a form that is not read: XML, Python, or keys and values by themselves."""
    expected = LLAMA3 if name in LLAMA3_TEMPLATES else QWEN if name in QWEN_TEMPLATES else None
    assert find_format(byte_tokenizer(read_template(name))) is expected


def test_the_known_templates_are_among_the_published() -> None:
    assert set(template_names()) >= LLAMA3_TEMPLATES | QWEN_TEMPLATES | {"glm4moe", "muse_glimmer", "qwen3_5_think"}


CALLS = "{% for call in message.tool_calls or [] %}"
WRITTEN = {
    "[TOOL_CALLS] [{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}]": MISTRAL,
    "[TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments | tojson }}": MISTRAL,
    "[TOOL_CALLS]{{ call.function.name }}{{ call.function.arguments | tojson }}": MISTRAL,
    '<tool_call>{"arguments": {{ call.function.arguments | tojson }}, "name": "{{ call.function.name }}"}': QWEN,
    '<tool_call>\n{{ {"name": call.function.name, "arguments": call.function.arguments} | tojson }}': QWEN,
    '{{ "\\n" }}{"name": "{{ call.function.name }}", "parameters": {{ call.function.arguments | tojson }}}': LLAMA3,
    '<|python_tag|>{"name": "{{ call.function.name }}", "parameters": {{ call.function.arguments | tojson }}}': LLAMA3,
    "<tool_call><function={{ call.function.name }}>": None,
    '[{"name": "{{ call.function.name }}", "parameters": {{ call.function.arguments | tojson }}}]': None,
    "{{ call.function.name }}": None,
}


@pytest.mark.parametrize("written", WRITTEN)
def test_a_template_is_known_by_the_call_that_it_writes(written: str) -> None:
    """Whatever else it says: tools are shown here as Llama's calls and as Qwen's."""
    shown = '<tool_call>{"name": "{{ tools[0].function.name }}", "parameters": {{ tools | tojson }}} [TOOL_CALLS] [{"'
    messages = "{% for message in messages %}{{ message.content }}" + CALLS + written + "{% endfor %}{% endfor %}"
    assert find_format(byte_tokenizer(shown + messages)) is WRITTEN[written]


def test_a_model_without_a_known_form_is_told_of(caplog) -> None:
    assert find_format(byte_tokenizer("{{ messages }}{{ tools }}")) is None
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert "none of the known forms (mistral, qwen, llama3)" in record.getMessage()
    caplog.clear()
    assert find_format(byte_tokenizer(read_template("qwen3"))) is QWEN
    assert not caplog.records


@pytest.mark.parametrize(
    ("version", "tool_format"), [("v1", None), ("v2", MISTRAL), ("v3", MISTRAL), ("tekken", MISTRAL)]
)
def test_mistrals_own_vocabularies(version: str, tool_format: ToolCallFormat | None, tmp_path) -> None:
    assert find_format(load_tokenizer(mistral_folder(tmp_path, version))) is tool_format


def test_a_model_without_any_form_has_none(shared_data) -> None:
    assert find_format(load_tokenizer(smollm2_path())) is None
    assert find_format(load_tokenizer(shared_data / "stories260K-hf")) is None
