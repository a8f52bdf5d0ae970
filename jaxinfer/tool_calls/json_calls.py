"""Calls as JSON, which all formats have in common; what a model wrote is read leniently and given out strictly."""

import json
import re
import secrets
from typing import Any

from jaxinfer.outputs import ToolCall

# Mistral's templates take ids of exactly nine letters and digits, and refuse all others; no other family minds them.
_ID_LENGTH = 9
_WRITTEN_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


# Not strict: models write a newline inside a string as it is.
_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse)


def read_value(text: str, start: int) -> tuple[Any, int] | None:
    """The JSON value that begins at ``start`` exactly, and where it ends; None where there is none.

    The value ends where JSON says so, so a marker inside one of its strings is nothing but text. A failure takes time
    that grows with ``start``: to be called once more after success only.
    """
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None


def read_call(text: str, start: int) -> tuple[ToolCall, int] | None:
    """The call whose JSON object begins at ``start``, as ``call_of`` takes it, and where it ends."""
    found = read_value(text, start)
    if found is None:
        return None
    call = call_of(found[0])
    return None if call is None else (call, found[1])


def call_of(value: Any) -> ToolCall | None:
    """A call from ``{"name": ..., "arguments": {...}}``, Llama's ``parameters`` in their place, with or without id."""
    if not isinstance(value, dict):
        return None
    return make_call(value.get("name"), value.get("arguments", value.get("parameters")), value.get("id"))


def make_call(name: Any, arguments: Any, call_id: Any) -> ToolCall | None:
    """A call, or None where name or arguments are not what a call has; without a usable id, it gets a random one.

    ``arguments`` is an object, or JSON text of one. In the call it is text that is valid JSON and valid UTF-8.
    """
    if isinstance(arguments, str):
        found = read_value(arguments, 0)
        arguments = found[0] if found is not None and found[1] == len(arguments) else None
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        (name + text).encode()
    except (ValueError, RecursionError):  # a number beyond all floats, half of a character
        return None
    usable = isinstance(call_id, str) and _WRITTEN_ID.fullmatch(call_id)
    return ToolCall(id=call_id if usable else _new_id(), name=name, arguments=text)


def _new_id() -> str:
    return secrets.token_hex(_ID_LENGTH)[:_ID_LENGTH]
