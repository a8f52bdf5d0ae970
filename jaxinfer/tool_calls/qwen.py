"""The calls of Qwen2.5, Qwen3 and Hermes: ``<tool_call>``, ``{"name": "f", "arguments": {...}}``, ``</tool_call>``.

Each of the three stands on a line of its own, for every call anew. Text may come before the first and, against all
training, between calls and behind them; it stays text.
"""

import re

from jaxinfer.outputs import ToolCall
from jaxinfer.tool_calls.formats import Opening, Parsed, ToolCallFormat, find_marker
from jaxinfer.tool_calls.json_calls import read_call

_MARKER, _END_MARKER = "<tool_call>", "</tool_call>"
_OPENING = re.compile(r"<tool_call>\s*+")
_CLOSING = re.compile(r"\s*+(?:</tool_call>)?+")  # forgotten at times, when the answer ends there


def _find_opening(text: str, _is_beginning: bool) -> Opening:
    return find_marker(text, _MARKER)


def _parse(written: str) -> Parsed:
    calls: list[ToolCall] = []
    texts: list[str] = []
    end = 0
    while opening := _OPENING.search(written, end):
        found = read_call(written, opening.end())
        if found is None:
            break
        texts.append(written[end : opening.start()])
        calls.append(found[0])
        closing = _CLOSING.match(written, found[1])
        end = found[1] if closing is None else closing.end()
    texts.append(written[end:])
    return Parsed(tuple(calls), "".join(text for text in texts if text.strip()))


QWEN = ToolCallFormat("qwen", (_MARKER, _END_MARKER), _find_opening, _parse)
