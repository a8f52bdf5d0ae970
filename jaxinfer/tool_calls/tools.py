"""What a caller may give as tools, checked before a template writes it: a wrong one it would write without a word."""

import reprlib
from collections.abc import Mapping, Sequence


def check_tools(tools: object) -> None:
    """ValueError unless ``tools`` is a list as OpenAI's API has it: ``{"type": "function", "function": {...}}``.

    Of a function the name is needed; ``description`` is text and ``parameters`` a JSON schema, where there are any.
    """
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Sequence):
        raise ValueError(f"tools is {reprlib.repr(tools)}; it must be a list of tools")
    for i, tool in enumerate(tools):
        _check_tool(f"tools[{i}]", tool)


def _check_tool(place: str, tool: object) -> None:
    if not isinstance(tool, Mapping) or tool.get("type") != "function":
        allowed = "{'type': 'function', 'function': {'name': ..., 'parameters': ...}}"
        raise ValueError(f"{place} is {reprlib.repr(tool)}; it must be a dict like {allowed}")
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise ValueError(f"{place}['function'] is {reprlib.repr(function)}; it must be a dict with a 'name'")
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str) or not name:
        raise ValueError(f"{place}['function']['name'] is {reprlib.repr(name)}; it must be text")
    if not isinstance(description, str | None):
        raise ValueError(f"{place}['function']['description'] is {reprlib.repr(description)}; it must be text")
    parameters = function.get("parameters")
    if not isinstance(parameters, Mapping | None):
        raise ValueError(f"{place}['function']['parameters'] is {reprlib.repr(parameters)}; it must be a JSON schema")
