"""What each format's parser makes of what models write: as they were trained to, nearly so, and not at all."""

import json
import re
import time

import pytest

from jaxinfer.tool_calls.formats import ToolCallFormat
from jaxinfer.tool_calls.llama3 import LLAMA3
from jaxinfer.tool_calls.mistral import MISTRAL
from jaxinfer.tool_calls.qwen import QWEN

FORMATS = [MISTRAL, LLAMA3, QWEN]


def parsed(tool_format: ToolCallFormat, written: str) -> tuple[list[tuple[str, object]], str]:
    """(name, arguments) of the calls, and the text."""
    result = tool_format.parse(written)
    for call in result.calls:
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call.id)
    return [(call.name, json.loads(call.arguments)) for call in result.calls], result.text


CALL_F, CALL_G = '{"name": "f", "arguments": {}}', '{"name": "g", "arguments": {}}'
F, G = ("f", {}), ("g", {})

WRITTEN = {
    MISTRAL: [
        ('[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]', [("f", {"a": 1})], ""),
        (f"[TOOL_CALLS][{CALL_F},{CALL_G}]\n", [F, G], ""),
        (f"[TOOL_CALLS] {CALL_F}", [F], ""),
        (f"[TOOL_CALLS] [{CALL_F}] Done.", [F], " Done."),
        ('[TOOL_CALLS][{"name": "f", "arguments": "{\\"a\\": 1}"}]', [("f", {"a": 1})], ""),
        ('[TOOL_CALLS][{"name": "f", "arguments": {"a": "[TOOL_CALLS]]"}}]', [("f", {"a": "[TOOL_CALLS]]"})], ""),
        ('[TOOL_CALLS]f[ARGS]{"a": {"b": [1]}}', [("f", {"a": {"b": [1]}})], ""),
        ('[TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{"a": 1}', [("f", {"a": 1})], ""),
        ("[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[ARGS]{}", [F, G], ""),
        ("[TOOL_CALLS]f{}", [F], ""),
        ('[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[ARGS]{"a"', [F], '[TOOL_CALLS]g[ARGS]{"a"'),
    ],
    LLAMA3: [
        ('{"name": "f", "parameters": {"a": 1}}', [("f", {"a": 1})], ""),
        (f" \n{CALL_F}\n", [F], ""),
        ('{"type": "function", "name": "f", "parameters": {}}', [F], ""),
        (f"<|python_tag|>{CALL_F}", [F], ""),
        (f"{CALL_F}; {CALL_G}", [F, G], ""),
        (f"{CALL_F};{CALL_G};", [F, G], ""),
        (f"{CALL_F}\n{CALL_G}", [F, G], ""),
        (f"{CALL_F}{CALL_G}", [F, G], ""),
        (f"<|python_tag|>{CALL_F} ;\n<|python_tag|> {CALL_G}", [F, G], ""),
        (f"{CALL_F}; That calls f.", [F], "; That calls f."),
    ],
    QWEN: [
        ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', [("f", {"a": 1})], ""),
        (f"\n<tool_call>{CALL_F}", [F], ""),
        (
            '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call>',
            [("f", {"a": "</tool_call>"})],
            "",
        ),
        ('<tool_call>\n{"name": "f", "arguments": {"a": "x\ny\t"}}\n</tool_call>', [("f", {"a": "x\ny\t"})], ""),
        (f"<tool_call>{CALL_F}</tool_call>\n<tool_call>{CALL_G}</tool_call>", [F, G], ""),
        (f"<tool_call>{CALL_F}</tool_call> and <tool_call>{CALL_G}</tool_call>.", [F, G], " and ."),
        (f'<tool_call>{CALL_F}</tool_call><tool_call>{{"na', [F], '<tool_call>{"na'),
    ],
}


@pytest.mark.parametrize(
    ("tool_format", "written", "calls", "text"),
    [(tool_format, *case) for tool_format, cases in WRITTEN.items() for case in cases],
    ids=[f"{tool_format.name}-{i}" for tool_format, cases in WRITTEN.items() for i in range(len(cases))],
)
def test_calls_are_read(tool_format: ToolCallFormat, written: str, calls: list[object], text: str) -> None:
    assert parsed(tool_format, written) == (calls, text)


BROKEN = [
    "",
    "{",
    "[]",
    "null",
    "f",
    '{"name": "f"}',
    '{"name": "", "arguments": {}}',
    '{"name": 5, "arguments": {}}',
    '{"name": "f", "arguments": [1]}',
    '{"name": "f", "arguments": "five"}',
    '{"name": "f", "arguments": {"a": NaN}}',
    '{"name": "f", "arguments": {"a": -Infinity}}',
    '{"name": "f", "arguments": {"a": 1e999}}',
    '{"name": "f", "arguments": {"a": "\\ud800"}}',
    '{"name": "\\ud800", "arguments": {}}',
    '{"name": "f", "arguments": {"a": ' + "[" * 100_000 + "}}",
    '{"name": "f", "arguments": {"a": ' + "1" * 100_000 + "}}",
    '{"name": "f", "arguments": {"a": "' + "x" * 1000,
]


@pytest.mark.parametrize("tool_format", FORMATS, ids=lambda tool_format: tool_format.name)
@pytest.mark.parametrize("written", BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_call_is_text(tool_format: ToolCallFormat, written: str) -> None:
    start = "" if tool_format is LLAMA3 else tool_format.markers[0]
    for before, after in (("", ""), ("[", "]")):
        assert tool_format.parse(start + before + written + after).calls == ()


@pytest.mark.parametrize(
    "written", ["f", "f[ARGS]", "f[ARGS][1]", "f[ARGS]{", "[ARGS]{}", "f g[ARGS]{}", "f[CALL_ID]{"]
)
def test_what_is_no_named_call_is_text(written: str) -> None:
    assert MISTRAL.parse("[TOOL_CALLS]" + written).calls == ()


def test_one_broken_call_in_a_list_spoils_it() -> None:
    assert MISTRAL.parse('[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "g"}]').calls == ()


def test_ids_are_the_models_own_or_of_nine_letters() -> None:
    """Mistral's templates refuse ids of another length."""
    [own] = MISTRAL.parse('[TOOL_CALLS][{"name": "f", "arguments": {}, "id": "abcDEF123"}]').calls
    [named] = MISTRAL.parse("[TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{}").calls
    assert own.id == named.id == "abcDEF123"
    for odd in ('"a b"', '""', "17", '"' + "x" * 65 + '"'):
        [call] = MISTRAL.parse('[TOOL_CALLS][{"name": "f", "arguments": {}, "id": ' + odd + "}]").calls
        assert re.fullmatch("[a-zA-Z0-9]{9}", call.id)
    calls = LLAMA3.parse('{"name": "f", "parameters": {}};' * 1000).calls
    assert len({call.id for call in calls}) == len(calls) == 1000


def test_arguments_are_json_text() -> None:
    [call] = QWEN.parse('<tool_call>{"name": "f", "arguments": {"a":"\\u00e9\\n\x01","b" : [1.50,true,null]}}').calls
    assert call.arguments == '{"a": "é\\n\\u0001", "b": [1.5, true, null]}'


ENDLESS = [
    "<tool_call>" * 50_000,
    '<tool_call>"' * 50_000,
    '<tool_call>{"name": "f", "arguments": {}}' * 10_000 + "<tool_call>",
    "\n" * 500_000,
    '{"name": "f", "parameters": {}};' * 10_000,
    "{" * 500_000,
    '{"name":' * 50_000,
    "[TOOL_CALLS]" * 50_000,
    "[TOOL_CALLS]" + "f" * 500_000,
    "[TOOL_CALLS]f" + " " * 500_000,
    "[TOOL_CALLS]f[CALL_ID]" + " " * 500_000,
    "[TOOL_CALLS]f[ARGS]{}" * 10_000 + " " * 100_000,
]


@pytest.mark.parametrize("tool_format", FORMATS, ids=lambda tool_format: tool_format.name)
@pytest.mark.parametrize("written", ENDLESS, ids=range(len(ENDLESS)))
def test_the_time_is_linear(tool_format: ToolCallFormat, written: str) -> None:
    """Half a million characters: milliseconds where each is looked at a few times, minutes where each meets each."""
    begin = time.process_time()
    tool_format.parse(written)
    assert time.process_time() - begin < 2
