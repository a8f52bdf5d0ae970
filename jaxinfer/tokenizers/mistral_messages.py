"""Conversations as OpenAI's API has them, made ready for mistral-common, which takes some forms and not others.

- Mistral's models were trained with ids of calls of nine letters and digits, and the library refuses others. Histories
  that another model or program began have others ("call_1"), or none. A foreign id becomes nine digits of its hash: the
  same each time, so the cached prefix of a conversation stays valid, and call and result still meet. A missing one is
  made up from the call's place; a result without one answers the first call that still waits.
- The second version wants the name of the function in a result, where OpenAI's API has only the id.
- The library fetches images from addresses and from this machine's files. No model here sees images, so content that is
  not text is refused before the library sees it.
"""

import hashlib
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_CALL_ID = re.compile("[a-zA-Z0-9]{9}")


@dataclass(frozen=True)
class _Call:
    """A function call that waits for its result."""

    call_id: str
    name: str


def prepared_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Copies of ``messages`` with ids of calls, and names in results, that mistral-common takes.

    Roles and their order are left to the library to check.

    Raises:
        ValueError: ``messages`` is no list of dicts, content is not text (or a list of parts of the type "text"), a
            call is not as OpenAI's API has it, or a result has no id and no call waits; the message names the place.
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence) or not messages:
        allowed = "a list of at least one dict with 'role' and 'content'"
        raise ValueError(f"messages is {reprlib.repr(messages)}; it must be {allowed}")
    prepared: list[dict[str, Any]] = []
    waiting: list[_Call] = []
    for i, message in enumerate(messages):
        copy = _checked_copy(i, message)
        if copy["role"] == "user":
            waiting = []
        elif copy["role"] == "assistant" and copy.get("tool_calls"):
            copy["tool_calls"], calls = _calls_with_ids(i, copy["tool_calls"])
            waiting += calls
        elif copy["role"] == "tool":
            _give_id_and_name(i, copy, waiting)
        prepared.append(copy)
    return prepared


def _checked_copy(i: int, message: object) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise ValueError(f"messages[{i}] is {reprlib.repr(message)}; it must be a dict with 'role' and 'content'")
    if not isinstance(message.get("role"), str):
        raise ValueError(f"messages[{i}]['role'] is {reprlib.repr(message.get('role'))}; it must be text")
    content = message.get("content")
    may_lack = bool(message.get("tool_calls"))
    if not (isinstance(content, str) or _is_text_parts(content) or (content is None and may_lack)):
        raise ValueError(f"messages[{i}]['content'] is {reprlib.repr(content)}; it must be text")
    return {**message, "content": list(content)} if isinstance(content, tuple) else dict(message)


def _is_text_parts(content: object) -> bool:
    return isinstance(content, list | tuple) and all(
        isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)
        for part in content
    )


def _calls_with_ids(i: int, calls: object) -> tuple[list[dict[str, Any]], list[_Call]]:
    if not isinstance(calls, list | tuple):
        raise ValueError(f"messages[{i}]['tool_calls'] is {reprlib.repr(calls)}; it must be a list")
    copies, waiting = [], []
    for j, call in enumerate(calls):
        place = f"messages[{i}]['tool_calls'][{j}]"
        function = _checked_function(place, call)
        given = _id_or_none(f"{place}['id']", call.get("id"))
        call_id = _nine_digits(place) if given is None else _call_id(given)
        copies.append({**call, "id": call_id})
        waiting.append(_Call(call_id, function["name"]))
    return copies, waiting


def _checked_function(place: str, call: object) -> Mapping[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError(f"{place} is {reprlib.repr(call)}; it must be a dict with a 'function' that has a 'name'")
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str | dict):
        raise ValueError(
            f"{place}['function']['arguments'] is {reprlib.repr(arguments)}; it must be JSON as text, or a dict"
        )
    return function


def _give_id_and_name(i: int, result: dict[str, Any], waiting: list[_Call]) -> None:
    """Changes ``result``, and takes the call that it answers out of ``waiting``."""
    given = _id_or_none(f"messages[{i}]['tool_call_id']", result.get("tool_call_id"))
    if given is None and not waiting:
        raise ValueError(f"messages[{i}] is the result of a tool without 'tool_call_id', and no call waits for one")
    call_id = waiting[0].call_id if given is None else _call_id(given)
    result["tool_call_id"] = call_id
    for call in waiting:
        if call.call_id == call_id:
            if result.get("name") is None:
                result["name"] = call.name
            waiting.remove(call)
            return


def _id_or_none(place: str, given: object) -> str | None:
    if given is not None and not isinstance(given, str):
        raise ValueError(f"{place} is {reprlib.repr(given)}; it must be text")
    return given or None


def _call_id(given: str) -> str:
    return given if _CALL_ID.fullmatch(given) else _nine_digits(given)


def _nine_digits(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:9]
