"""Calls that have to be made: the forms that answers are held to, judged by ``jsonschema``, and what is read then."""

from typing import Any

import jsonschema
import pytest

from jaxinfer.openai_api.tool_choice import FunctionName, NamedFunction, ToolChoice, ToolMode, tool_choice
from jaxinfer.outputs import CompletionOutput, ToolCall

PLACE = {
    "properties": {"in": {"$ref": "#/$defs/City"}, "next": {"$ref": "#"}},
    "required": ["in"],
    "additionalProperties": False,
    "$defs": {"City": {"enum": ["Rome", "Oslo"]}},
}
TIME = {
    "$schema": "http://json-schema.org/draft-07/schema#",  # as programs in TypeScript write them
    "$ref": "#/definitions/City",
    "definitions": {"City": {"type": "object", "properties": {"at": {"type": "integer"}}}},
    "$defs": {"City": {"type": "integer"}},
}
TOOLS = [
    {"type": "function", "function": {"name": "place", "parameters": PLACE}},
    {"type": "function", "function": {"name": "time", "parameters": TIME}},
    {"type": "function", "function": {"name": "nothing"}},
]
CALLS = (ToolCall("1", "place", "{}"), ToolCall("2", "time", "{}"))


def choose(asked: ToolMode | str | None, *, is_single: bool = False) -> ToolChoice:
    """With any other text than a mode as the name of a function."""
    named = NamedFunction(type="function", function=FunctionName(name=asked or ""))
    return tool_choice(TOOLS, asked if asked in ("none", "auto", "required", None) else named, is_single=is_single)


def output(text: str, finish_reason: Any, *calls: ToolCall) -> CompletionOutput:
    """A sequence whose last piece of text is one character."""
    return CompletionOutput(0, text, [1], finish_reason, text[-1:], tool_calls=calls)


@pytest.mark.parametrize(
    ("name", "arguments", "is_right"),
    [
        ("place", {"in": "Rome"}, True),
        ("place", {"in": "Rome", "next": {"in": "Oslo"}}, True),
        ("place", {"in": "Rome", "next": {"in": 1}}, False),
        ("place", {"in": "Paris"}, False),
        ("place", {"in": 1}, False),
        ("place", {}, False),
        ("place", "Rome", False),
        ("time", {"at": 1}, True),
        ("time", {"at": "Rome"}, False),
        ("nothing", {}, True),
        ("nothing", {"at": 1}, False),
    ],
)
def test_a_form_allows_the_right_calls_only(name: str, arguments: Any, is_right: bool) -> None:
    """Each function's references are to places of its own schema, also where several schemas stand side by side."""
    for asked, value in ((name, arguments), ("required", {"name": name, "arguments": arguments})):
        form = choose(asked).form
        assert form is not None
        assert isinstance(form.json, dict)
        assert jsonschema.Draft202012Validator(form.json).is_valid(value) is is_right


def test_a_form_has_the_functions_that_there_are() -> None:
    form = choose("required").form
    assert form is not None
    assert isinstance(form.json, dict)
    validator = jsonschema.Draft202012Validator(form.json)
    for wrong in ({"name": "other", "arguments": {}}, {"name": "nothing"}, {"arguments": {}}, {}, "nothing"):
        assert not validator.is_valid(wrong)


def test_calls_of_the_models_own() -> None:
    sequence = output("Hi", "tool_calls", *CALLS)
    for asked in (None, "auto"):
        assert choose(asked).form is None
        assert choose(asked).applied(sequence) == sequence
        assert choose(asked, is_single=True).applied(sequence).tool_calls == CALLS[:1]
    assert choose("none").tools is None


@pytest.mark.parametrize(
    ("asked", "text", "name", "arguments", "reason"),
    [
        ("required", '{"name": "place", "arguments": {"in": "Rome"}}', "place", '{"in": "Rome"}', "tool_calls"),
        ("time", '{"at":1}', "time", '{"at": 1}', "stop"),
        ("nothing", "{}", "nothing", "{}", "stop"),
    ],
)
def test_what_was_written_becomes_the_call(asked: str, text: str, name: str, arguments: str, reason: str) -> None:
    choice = choose(asked)
    ended = choice.applied(output(text, "stop"))
    [call] = ended.tool_calls
    assert (call.name, call.arguments, ended.finish_reason) == (name, arguments, reason)
    assert (ended.text, ended.delta) == ("", "")
    running = choice.applied(output(text[:3], None))
    assert (running.text, running.delta, running.finish_reason, running.tool_calls) == ("", "", None, ())


@pytest.mark.parametrize("reason", ["length", "stop", "content_filter"])
@pytest.mark.parametrize(("asked", "text"), [("required", '{"name": "pla'), ("time", '{"at":'), ("nothing", "")])
def test_what_was_cut_off_is_text(asked: str, text: str, reason: str) -> None:
    """By the length, by a stop string, by a filter; in a stream nothing of it was given before."""
    ended = choose(asked).applied(output(text, reason))
    assert (ended.text, ended.delta, ended.finish_reason, ended.tool_calls) == (text, text, reason, ())


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_what_might_have_gone_on_is_text(reason: str) -> None:
    """The engine says ``stop`` where nothing can follow."""
    text = '{"at": 1}'
    ended = choose("time").applied(output(text, reason))
    assert (ended.text, ended.finish_reason, ended.tool_calls) == (text, reason, ())
