"""The calls of Llama 3.1 and later: ``{"name": "f", "parameters": {...}}``, several with ``;`` between them.

They come after ``<|python_tag|>``, or as the whole of an answer: its first characters then tell. What else comes after
the tag is Python, which is text. Llama 3 itself knows no tools.
"""

import re

from jaxinfer.outputs import ToolCall
from jaxinfer.tool_calls.formats import Opening, Parsed, ToolCallFormat, find_marker
from jaxinfer.tool_calls.json_calls import read_call

PYTHON_TAG = "<|python_tag|>"
_BEGINNINGS = ('{"name":', '{"type":')  # the second is what the models make of the tool's own schema
_MAX_BEGINNING = 64  # characters in which one of them must have come, with any space between its parts
_BETWEEN = re.compile(r"[\s;]*+(?:<\|python_tag\|>\s*+)?+")


def _find_opening(text: str, is_beginning: bool) -> Opening:
    by_tag = find_marker(text, PYTHON_TAG)
    if by_tag.begun or not is_beginning:
        return by_tag
    written = "".join(text[:_MAX_BEGINNING].split())
    if written.startswith(_BEGINNINGS):
        return Opening(0, begun=True)
    if len(text) < _MAX_BEGINNING and any(beginning.startswith(written) for beginning in _BEGINNINGS):
        return Opening(0, begun=False)
    return by_tag


def _parse(written: str) -> Parsed:
    calls: list[ToolCall] = []
    end = 0
    while found := read_call(written, _skip_between(written, end)):
        calls.append(found[0])
        end = found[1]
    return Parsed(tuple(calls), written[end:] if _skip_between(written, end) < len(written) else "")


def _skip_between(written: str, start: int) -> int:
    between = _BETWEEN.match(written, start)
    return start if between is None else between.end()


LLAMA3 = ToolCallFormat("llama3", (PYTHON_TAG,), _find_opening, _parse)
