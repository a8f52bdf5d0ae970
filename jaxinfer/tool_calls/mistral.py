"""Mistral's calls, of all versions of its tokenizers.

Up to v7 a list, ``[TOOL_CALLS] [{"name": "f", "arguments": {...}, "id": "..."}, ...]``; from v11 on each call by
itself, ``[TOOL_CALLS]f[ARGS]{...}``, in v11 with ``[CALL_ID]...`` before the arguments. What comes after the marker
tells which it is.
"""

import re

from jaxinfer.outputs import ToolCall
from jaxinfer.tool_calls.formats import Opening, Parsed, ToolCallFormat, find_marker
from jaxinfer.tool_calls.json_calls import call_of, make_call, read_value

_MARKER = "[TOOL_CALLS]"
_OPENING = re.compile(r"\s*+\[TOOL_CALLS\]\s*+")
_HEAD = re.compile(
    r"(?P<name>[^\s\[\]{}\"]{1,256}+)\s*+(?:\[CALL_ID\]\s*+(?P<id>[^\s\[\]{}]{0,64}+)\s*+)?+(?:\[ARGS\]\s*+)?+(?=\{)"
)


def _find_opening(text: str, _is_beginning: bool) -> Opening:
    return find_marker(text, _MARKER)


def _parse(written: str) -> Parsed:
    calls: list[ToolCall] = []
    end = 0
    while opening := _OPENING.match(written, end):
        found = _read_list(written, opening.end()) or _read_named(written, opening.end())
        if found is None:
            break
        calls += found[0]
        end = found[1]
    rest = written[end:]
    return Parsed(tuple(calls), rest if rest.strip() else "")


def _read_list(written: str, start: int) -> tuple[list[ToolCall], int] | None:
    if not written.startswith(("[", "{"), start):
        return None
    found = read_value(written, start)
    if found is None:
        return None
    value, end = found
    calls = [call_of(item) for item in (value if isinstance(value, list) else [value])]
    whole = [call for call in calls if call is not None]
    return (whole, end) if whole and len(whole) == len(calls) else None


def _read_named(written: str, start: int) -> tuple[list[ToolCall], int] | None:
    head = _HEAD.match(written, start)
    found = read_value(written, head.end()) if head else None
    if head is None or found is None:
        return None
    call = make_call(head["name"], found[0], head["id"])
    return None if call is None else ([call], found[1])


MISTRAL = ToolCallFormat("mistral", (_MARKER, "[ARGS]", "[CALL_ID]"), _find_opening, _parse)
