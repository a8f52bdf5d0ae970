"""What is read in what models write, in each format: as they were trained to, nearly so, and not at all."""

import json
import re
import time

import pytest

from jaxinfer.outputs import ToolCall
from jaxinfer.tool_calls.formats import ToolCallFormat
from jaxinfer.tool_calls.llama3 import LLAMA3
from jaxinfer.tool_calls.markers import MarkerCoder
from jaxinfer.tool_calls.mistral import MISTRAL
from jaxinfer.tool_calls.qwen import QWEN
from jaxinfer.tool_calls.reader import CallReader
from tests.jaxinfer.tool_calls.vocabulary import byte_tokenizer

FORMATS = [MISTRAL, LLAMA3, QWEN]


SPELLED = byte_tokenizer(special=[], added=[])


def read(tool_format: ToolCallFormat, written: str) -> tuple[list[ToolCall], str]:
    """The calls and the text, markers being spelled, as they are given out with the answer's end."""
    coder = MarkerCoder(SPELLED, tool_format.markers)
    reader = CallReader(tool_format, coder.spelled)
    coded = reader.push(coder.push(written) + coder.settle()) + reader.finish(is_whole=True)
    return reader.calls, coder.shown(coded)


def parsed(tool_format: ToolCallFormat, written: str) -> tuple[list[tuple[str, object]], str]:
    """(name, arguments) of the calls, and the text."""
    calls, text = read(tool_format, written)
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", call.id) for call in calls)
    assert len({call.id for call in calls}) == len(calls)
    return [(call.name, json.loads(call.arguments)) for call in calls], text


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
        ('[TOOL_CALLS]g[ARGS]{"a"}[TOOL_CALLS]f[ARGS]{}', [F], '[TOOL_CALLS]g[ARGS]{"a"}'),
        (f'[TOOL_CALLS][{CALL_F}, {{"name": 5}}, {CALL_G}]', [F, G], '[TOOL_CALLS][, {"name": 5}, ]'),
        (
            f'[TOOL_CALLS][{{"name": "h", "arguments": 5}}, {CALL_G}]',
            [G],
            '[TOOL_CALLS][{"name": "h", "arguments": 5}, ]',
        ),
        (f'[TOOL_CALLS][{CALL_F}, {{"name": "g", "argu', [F], ', {"name": "g", "argu'),
        (f"[TOOL_CALLS][{CALL_F} {CALL_G}]", [F], f" {CALL_G}]"),
        (f"[TOOL_CALLS] is how I call: [TOOL_CALLS][{CALL_F}]", [F], "[TOOL_CALLS] is how I call: "),
        (f"One.[TOOL_CALLS][{CALL_F}]Two.[TOOL_CALLS][{CALL_G}]Three.", [F, G], "One.Two.Three."),
        ('[TOOL_CALLS][{"name": "f"}]', [F], ""),
        ('[TOOL_CALLS][{"name": "f", "arguments": null}]', [F], ""),
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
        (f"So: <|python_tag|>{CALL_F}. Then <|python_tag|>{CALL_G}", [F, G], "So: . Then "),
        (f"<|python_tag|>print(1)<|python_tag|>{CALL_F}", [F], "<|python_tag|>print(1)"),
        (f'{CALL_F};{{"name": 5}};<|python_tag|>{CALL_G}', [F, G], ';{"name": 5};'),
        ('<|python_tag|>{"name": "f"}', [F], ""),
        ('{"name": "f", "parameters": null}', [F], ""),
        ('{"name": "Alice"}', [], '{"name": "Alice"}'),  # JSON that the user asked for
        (
            f'{{"name": "Alice", "age": 3, "parameters": {{}}}}<|python_tag|>{CALL_F}',
            [F],
            '{"name": "Alice", "age": 3, "parameters": {}}',
        ),
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
        (f"I write <tool_call> first.\n<tool_call>\n{CALL_F}\n</tool_call>", [F], "I write <tool_call> first."),
        (
            f'<tool_call>{{"name": 5}}</tool_call><tool_call>{CALL_F}</tool_call>',
            [F],
            '<tool_call>{"name": 5}</tool_call>',
        ),
        (f'<tool_call>{{"name": "g", "argum<tool_call>{CALL_F}</tool_call>', [F], '<tool_call>{"name": "g", "argum'),
        (
            f"<tool_call>{CALL_F}</tool_call>1<tool_call>{{oops}}</tool_call>2<tool_call>{CALL_G}</tool_call>3",
            [F, G],
            "1<tool_call>{oops}</tool_call>23",
        ),
        ('<tool_call>{"name": "f"}</tool_call>', [F], ""),
        ('<tool_call>{"name": "f", "arguments": null}</tool_call>', [F], ""),
        ('<tool_call>{"name": "f", "arguments": ""}</tool_call>', [F], ""),
        (
            f"<think><tool_call>{CALL_F}</tool_call></think>Hm.",
            [],
            f"<think><tool_call>{CALL_F}</tool_call></think>Hm.",
        ),
        (
            f"\n<think>\nOr <tool_call>{CALL_F}</tool_call>?\n</think>\n\n<tool_call>{CALL_G}</tool_call>",
            [G],
            f"\n<think>\nOr <tool_call>{CALL_F}</tool_call>?\n</think>\n",
        ),
        (f"I have no <think> tag.<tool_call>{CALL_F}</tool_call>", [F], "I have no <think> tag."),
        (f"<think>No end<tool_call>{CALL_F}</tool_call>", [], f"<think>No end<tool_call>{CALL_F}</tool_call>"),
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
    '{"name": "", "arguments": {}}',
    '{"name": 5, "arguments": {}}',
    '{"name": "f", "arguments": [1]}',
    '{"name": "f", "arguments": "five"}',
    '{"name": "f", "arguments": {"a": NaN}}',
    '{"name": "f", "arguments": {"a": -Infinity}}',
    '{"name": "f", "arguments": {"a": 1e999}}',
    '{"name": "f", "arguments": {"a": "\\ud800"}}',
    '{"name": "\\ud800", "arguments": {}}',
    '{"name": "f", "arguments": {"a": ' + "[" * 20_000 + "}}",
    '{"name": "f", "arguments": {"a": ' + "1" * 100_000 + "}}",
    '{"name": "f", "arguments": {"a": "' + "x" * 1000,
]


@pytest.mark.parametrize("tool_format", FORMATS, ids=lambda tool_format: tool_format.name)
@pytest.mark.parametrize("written", BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_call_is_text(tool_format: ToolCallFormat, written: str) -> None:
    for marker in ("", tool_format.markers[0]):
        for before, after in (("", ""), ("[", "]"), ("a\n", "\nb\n")):
            answer = before + marker + written + after
            assert read(tool_format, answer) == ([], answer)


@pytest.mark.parametrize(
    "written", ["f", "f[ARGS]", "f[ARGS][1]", "f[ARGS]{", "[ARGS]{}", "f g[ARGS]{}", "f[CALL_ID]{"]
)
def test_what_is_no_named_call_is_text(written: str) -> None:
    assert read(MISTRAL, "[TOOL_CALLS]" + written) == ([], "[TOOL_CALLS]" + written)


def test_ids_are_the_models_own_or_of_nine_letters() -> None:
    """Mistral's templates refuse all others."""
    [own], _ = read(MISTRAL, '[TOOL_CALLS][{"name": "f", "arguments": {}, "id": "abcDEF123"}]')
    [named], _ = read(MISTRAL, "[TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{}")
    assert own.id == named.id == "abcDEF123"
    for odd in (
        '"a b"',
        '""',
        "17",
        '"' + "x" * 65 + '"',
        '"call_1"',
        '"abcDEF12"',
        '"abcDEF1234"',
        '"abcDEF-23"',
        "null",
    ):
        [call], _ = read(MISTRAL, '[TOOL_CALLS][{"name": "f", "arguments": {}, "id": ' + odd + "}]")
        assert re.fullmatch("[a-zA-Z0-9]{9}", call.id) and f'"{call.id}"' != odd


def test_no_two_calls_of_an_answer_share_an_id() -> None:
    one = '{"name": "f", "arguments": {}, "id": "abcDEF123"}'
    for tool_format, answer in (
        (MISTRAL, f"[TOOL_CALLS][{one}, {one}]"),
        (MISTRAL, f"[TOOL_CALLS]{one}[TOOL_CALLS]{one}"),
        (MISTRAL, "[TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{}" * 2),
        (QWEN, f"<tool_call>{one}</tool_call>" * 2),
        (LLAMA3, f"{one};{one}"),
    ):
        first, second = read(tool_format, answer)[0]
        assert first.id == "abcDEF123" != second.id
        assert re.fullmatch("[a-zA-Z0-9]{9}", second.id)
    calls, _ = read(LLAMA3, '{"name": "f", "parameters": {}};' * 1000)
    assert len({call.id for call in calls}) == len(calls) == 1000


def test_arguments_are_json_text() -> None:
    [call], _ = read(QWEN, '<tool_call>{"name": "f", "arguments": {"a":"\\u00e9\\n\x01","b" : [1.50,true,null]}}')
    assert call.arguments == '{"a": "é\\n\\u0001", "b": [1.5, true, null]}'


ENDLESS = [  # what comes first, what is repeated, what ends it
    ("", "<tool_call>", ""),
    ("", '<tool_call>"', ""),
    ("", '<tool_call>{"name": "f", "arguments": {}}', "<tool_call>"),
    ('<tool_call>{"a": "', "<tool_call>", ""),
    ("", '<tool_call>{"a":"', ""),
    ("", '<tool_call>{"a":["', ""),
    ("", '<tool_call>{",":",', ""),
    ('<tool_call>{"a": [', '"x", ', ""),
    ("", "<think>", ""),
    ("", "\n", ""),
    ("", '{"name": "f", "parameters": {}};', ""),
    ("", "{", ""),
    ("", '{"name":', ""),
    ("", "<|python_tag|>", ""),
    ("", '<|python_tag|>{"name":', ""),
    ("", "[TOOL_CALLS]", ""),
    ("[TOOL_CALLS]", "f", ""),
    ("[TOOL_CALLS]f", " ", ""),
    ("[TOOL_CALLS]f[CALL_ID]", " ", ""),
    ("", "[TOOL_CALLS]f[ARGS]{}", " " * 1000),
    ("[TOOL_CALLS]", "[", ""),
    ("", '[TOOL_CALLS][{"a":"', ""),
    ("", '[TOOL_CALLS][{"name": "f", "arguments": {}}, {', ""),
    ("[TOOL_CALLS][", '{"name": "f", "arguments": {}},', ""),
]


def seconds(tool_format: ToolCallFormat, written: str) -> float:
    coder = MarkerCoder(SPELLED, tool_format.markers)
    reader = CallReader(tool_format, coder.spelled)
    begin = time.process_time()
    for start in range(0, len(written), 10):
        reader.push(coder.push(written[start : start + 10]))
    reader.finish(is_whole=True)
    return time.process_time() - begin


@pytest.mark.parametrize(
    ("tool_format", "parts"),
    [
        pytest.param(tool_format, parts, id=f"{tool_format.name}-{i}")
        for i, parts in enumerate(ENDLESS)
        for tool_format in FORMATS
        if tool_format.markers[0] in "".join(parts) or tool_format is LLAMA3
    ],
)
def test_the_time_is_linear(tool_format: ToolCallFormat, parts: tuple[str, str, str]) -> None:
    """Sixteen times the text takes some sixteen times as long where each is looked at a few times, else 256 times."""
    before, repeated, behind = parts
    count = 2_000 // len(repeated)
    once = min(seconds(tool_format, before + repeated * count + behind) for _ in range(3))
    many = seconds(tool_format, before + repeated * (16 * count) + behind)
    assert many < 60 * max(once, 1e-3)
