"""Calls as JSON, which all formats have in common; what a model wrote is read leniently and given out strictly."""

import json
import re
import secrets
from typing import Any

from jaxinfer.outputs import ToolCall

# Mistral's templates take ids of exactly nine letters and digits, and refuse all others; no other family minds them.
_ID_LENGTH = 9
_USABLE_ID = re.compile(r"[a-zA-Z0-9]{9}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _read_object(text: str) -> dict[str, Any] | None:
    """The JSON object that ``text`` is; not strictly, since models write a newline inside a string as it is."""
    try:
        value = json.loads(text, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_call(text: str, taken_ids: set[str]) -> ToolCall | None:
    """A call from ``{"name": ..., "arguments": {...}}``, Llama's ``parameters`` in their place, with or without id.

    ``taken_ids`` as for ``make_call``. Takes time that is linear in ``text``, whether it is one or not.
    """
    value = _read_object(text)
    if value is None:
        return None
    return make_call(value.get("name"), value.get("arguments", value.get("parameters")), value.get("id"), taken_ids)


def make_call(name: Any, arguments: Any, call_id: Any, taken_ids: set[str]) -> ToolCall | None:
    """A call, or None where name or arguments are not what a call has.

    ``arguments`` is an object, JSON text of one, or None, which is one without members. In the call it is text that is
    valid JSON and valid UTF-8. The model's own id is kept only where every template takes it and no other call of the
    answer has it, since a result names its call by it. ``taken_ids`` are those of the answer; the call's is added.
    """
    if isinstance(arguments, str):
        arguments = _read_object(arguments or "{}")
        if arguments is None:
            return None
    if arguments is None:
        arguments = {}
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        (name + text).encode()
    except (ValueError, RecursionError):  # a number beyond all floats, half of a character
        return None
    is_usable = isinstance(call_id, str) and _USABLE_ID.fullmatch(call_id) and call_id not in taken_ids
    call = ToolCall(id=call_id if is_usable else _new_id(taken_ids), name=name, arguments=text)
    taken_ids.add(call.id)
    return call


def _new_id(taken_ids: set[str]) -> str:
    while (call_id := secrets.token_hex(_ID_LENGTH)[:_ID_LENGTH]) in taken_ids:
        pass
    return call_id
