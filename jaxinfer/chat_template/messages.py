"""Messages as callers give them, in OpenAI's form, and as templates take them.

They differ in two places. Arguments of tool calls are JSON text in OpenAI's API, as the model wrote it; templates write
a JSON object from a dict, and of text they would make a JSON string. And content may be a list of parts, which most
templates would write out as Python has it; of parts that are text it is these, each on a line of its own.
"""

import json
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any


def template_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """New messages for a template: arguments of tool calls as dicts, content as text, and no keys without a value.

    Templates ask whether a key is there, and would write None as "None" and an empty list of calls as a call.

    Raises:
        ValueError: what is given is no list of dicts with ``role`` and ``content``, both text (``content`` may also be
            a list of ``{"type": "text", "text": ...}``, and None or absent beside ``tool_calls``); a call has no name,
            or its arguments are no JSON object.
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence) or not messages:
        allowed = "a list of at least one dict with 'role' and 'content'"
        raise ValueError(f"messages is {reprlib.repr(messages)}; it must be {allowed}")
    return [_template_message(f"messages[{i}]", message) for i, message in enumerate(messages)]


def _template_message(place: str, message: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise ValueError(f"{place} is {reprlib.repr(message)}; it must be a dict with 'role' and 'content'")
    if not isinstance(message.get("role"), str):
        raise ValueError(f"{place}['role'] is {reprlib.repr(message.get('role'))}; it must be text")
    given = {key: value for key, value in message.items() if value is not None}
    calls = given.pop("tool_calls", None)
    if "content" in given or not calls:
        given["content"] = _as_text(f"{place}['content']", message.get("content"))
    if calls:
        given["tool_calls"] = _template_calls(f"{place}['tool_calls']", calls)
    return given


def _as_text(place: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else [None]
    texts = [part.get("text") for part in parts if isinstance(part, Mapping) and part.get("type") == "text"]
    if len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{place} is {reprlib.repr(content)}; it must be text, or a list of parts that are text")
    return "\n".join(map(str, texts))


def _template_calls(place: str, calls: Any) -> list[dict[str, Any]]:
    if not isinstance(calls, list | tuple):
        raise ValueError(f"{place} is {reprlib.repr(calls)}; it must be a list")
    return [_template_call(f"{place}[{i}]", call) for i, call in enumerate(calls)]


def _template_call(place: str, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError(f"{place} is {reprlib.repr(call)}; it must be a dict with 'function', a dict with 'name'")
    arguments = _as_object(f"{place}['function']['arguments']", function.get("arguments"))
    return {**call, "function": {**function, "arguments": arguments}}


def _as_object(place: str, arguments: Any) -> Mapping[str, Any]:
    """Arguments as a dict; none at all, or empty text, where a function takes none."""
    value = arguments
    try:
        if isinstance(arguments, str):
            value = json.loads(arguments or "{}")
        if isinstance(value, Mapping):
            json.dumps(dict(value), allow_nan=False)  # Python reads NaN, and 1e999, which are no numbers of JSON's
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{place} is {reprlib.repr(arguments)}; it is no JSON: {error}") from error
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{place} is {reprlib.repr(arguments)}; it must be a JSON object")
    return value
