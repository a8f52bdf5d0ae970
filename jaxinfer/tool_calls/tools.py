"""What a caller may give as tools, checked before a template writes it: a wrong one it would write without a word."""

import json
import re
import reprlib
from collections.abc import Mapping, Sequence

# As OpenAI's API and mistral-common have it. Every format of calls can write such a name, and none ends inside it.
_NAME = re.compile("[a-zA-Z0-9_-]{1,64}")


def check_tools(tools: object) -> None:
    """ValueError unless ``tools`` is a list as OpenAI's API has it: ``{"type": "function", "function": {...}}``.

    Of a function the name is needed, unlike those of the others, since a call has nothing else to say which it means;
    ``description`` is text and ``parameters`` a JSON schema, where there are any.
    """
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Sequence):
        raise ValueError(f"tools is {reprlib.repr(tools)}; it must be a list of tools")
    places: dict[str, int] = {}
    for i, tool in enumerate(tools):
        _check_json(f"tools[{i}]", tool)
        name = _checked_name(f"tools[{i}]", tool)
        if name in places:
            raise ValueError(f"tools[{places[name]}] and tools[{i}] are both named {name!r}; names must differ")
        places[name] = i


def _check_json(place: str, tool: object) -> None:
    try:
        json.dumps(tool, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{place} is {reprlib.repr(tool)}; it cannot be written as JSON: {error}") from error


def _checked_name(place: str, tool: object) -> str:
    if not isinstance(tool, Mapping) or tool.get("type") != "function":
        allowed = "{'type': 'function', 'function': {'name': ..., 'parameters': ...}}"
        raise ValueError(f"{place} is {reprlib.repr(tool)}; it must be a dict like {allowed}")
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise ValueError(f"{place}['function'] is {reprlib.repr(function)}; it must be a dict with a 'name'")
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        allowed = "1 to 64 of the letters a to z and A to Z, digits, _ and -"
        raise ValueError(f"{place}['function']['name'] is {reprlib.repr(name)}; it must be {allowed}")
    if not isinstance(description, str | None):
        raise ValueError(f"{place}['function']['description'] is {reprlib.repr(description)}; it must be text")
    parameters = function.get("parameters")
    if not isinstance(parameters, Mapping | None):
        raise ValueError(f"{place}['function']['parameters'] is {reprlib.repr(parameters)}; it must be a JSON schema")
    return name
