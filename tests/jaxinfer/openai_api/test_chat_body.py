"""Bodies of chats: what they come to, and which are refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from jaxinfer.openai_api.chat_body import ChatBody
from jaxinfer.openai_api.errors import ApiError, ErrorDetail
from jaxinfer.openai_api.field_errors import invalid_field
from jaxinfer.prompts import Prompt
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.structured_outputs.params import StructuredOutputsParams

HI = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}]
CALL_F = {"type": "function", "function": {"name": "f"}}
SCHEMA = {"type": "object"}


def read(**fields: Any) -> tuple[Prompt, SamplingParams]:
    """What the body asks of the engine."""
    body = ChatBody.model_validate({"messages": HI} | fields)
    choice = body.choice()
    return body.prompt(choice), body.params(choice)


def refusal(**fields: Any) -> ErrorDetail:
    """What its caller is told."""
    try:
        read(**fields)
    except ValidationError as error:
        return invalid_field(error.errors()).detail
    except ApiError as error:
        return error.detail
    pytest.fail("it was taken")


def test_a_body_of_nothing_else() -> None:
    prompt, params = read()
    assert prompt == {
        "messages": HI,
        "tools": None,
        "chat_template_kwargs": None,
        "safe_prompt": False,
        "cache_salt": None,
    }
    assert params == SamplingParams(max_tokens=None)


def test_null_is_as_if_the_field_were_not_there() -> None:
    names = ChatBody.model_fields.keys() - {"messages"}
    assert read(**dict.fromkeys(names)) == read()


def test_what_the_prompt_is_made_of() -> None:
    prompt, _ = read(tools=TOOLS, chat_template_kwargs={"a": 1}, safe_prompt=True, cache_salt="s")
    assert prompt == {
        "messages": HI,
        "tools": TOOLS,
        "chat_template_kwargs": {"a": 1},
        "safe_prompt": True,
        "cache_salt": "s",
    }
    assert read(tools=TOOLS, tool_choice="auto")[0] == read(tools=TOOLS)[0]
    assert read(tools=TOOLS, tool_choice="required")[0] == read(tools=TOOLS)[0]
    assert read(tools=TOOLS, tool_choice="none")[0] == read(tools=[])[0] == read(tool_choice="none")[0] == read()[0]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_tokens": 3}, {"max_tokens": 3}),
        ({"max_completion_tokens": 3}, {"max_tokens": 3}),
        ({"max_completion_tokens": 3, "max_tokens": 3}, {"max_tokens": 3}),
        ({"logprobs": True}, {"logprobs": 0}),
        ({"logprobs": True, "top_logprobs": 20}, {"logprobs": 20}),
        ({"logprobs": False}, {}),
        ({"response_format": {"type": "text"}}, {}),
        (
            {"response_format": {"type": "json_object"}},
            {"structured_outputs": StructuredOutputsParams(json_object=True)},
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
            {"structured_outputs": StructuredOutputsParams(json=SCHEMA)},
        ),
        (
            {"structured_outputs": {"choice": ["a"]}, "tools": TOOLS, "response_format": {"type": "text"}},
            {"structured_outputs": StructuredOutputsParams(choice=["a"])},
        ),
        (
            {"tools": TOOLS, "tool_choice": CALL_F},
            {"structured_outputs": StructuredOutputsParams(json={"type": "object", "additionalProperties": False})},
        ),
        ({"n": 2, "stop": "a", "seed": 1, "top_k": 2}, {"n": 2, "stop": "a", "seed": 1, "top_k": 2}),
    ],
)
def test_parameters(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert read(**fields)[1] == SamplingParams(**{"max_tokens": None} | expected)


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"messages": "Hi"}, "messages", "messages is 'Hi'"),
        ({"messages": ["Hi"]}, "messages", "messages.0 is 'Hi'"),
        ({"functions": TOOLS}, "functions", "the older form of tools"),
        ({"function_call": "auto"}, "function_call", "the older form of tool_choice"),
        ({"echo": True}, "echo", "there is no field 'echo'"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens", "max_tokens is 3 and max_completion_tokens 4"),
        ({"max_completion_tokens": -1}, "max_completion_tokens", "max_completion_tokens is -1"),
        ({"max_completion_tokens": 1, "min_tokens": 2}, "min_tokens", "min_tokens is 2, above max_tokens"),
        ({"top_logprobs": 1}, "top_logprobs", "logprobs: true"),
        ({"logprobs": False, "top_logprobs": 1}, "top_logprobs", "logprobs: true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "top_logprobs is 21"),
        ({"logprobs": 1}, "logprobs", "logprobs is 1"),
        ({"tool_choice": "auto"}, "tool_choice", "tool_choice is 'auto', and there are no tools"),
        ({"tool_choice": CALL_F, "tools": []}, "tool_choice", "and there are no tools"),
        ({"tool_choice": "any", "tools": TOOLS}, "tool_choice", "'required'"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "h"}}, "tools": TOOLS},
            "tool_choice",
            "the function 'h'; there is no such tool",
        ),
        ({"tools": [{"type": "function"}]}, "tools", "tools[0]['function'] is None"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools", "both named 'f'"),
        ({"tools": [TOOLS[0]] * 129}, "tools", "at most 128 items"),
        ({"response_format": {"type": "xml"}}, "response_format", "'xml'"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "json_schema"),
        (
            {"response_format": {"type": "text", "json_schema": {"name": "n", "schema": {}}}},
            "response_format",
            "with no other",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
            "response_format",
            "response_format.json_schema.schema is missing",
        ),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"choice": ["a"]}},
            "response_format",
            "response_format and structured_outputs",
        ),
        (
            {"response_format": {"type": "json_object"}, "tools": TOOLS, "tool_choice": "required"},
            "response_format",
            "response_format and tool_choice",
        ),
        (
            {"structured_outputs": {"choice": ["a"]}, "tools": TOOLS, "tool_choice": CALL_F},
            "structured_outputs",
            "structured_outputs and tool_choice",
        ),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str | None, words: str) -> None:
    told = refusal(**fields)
    assert words in told.message
    assert told.param == param
