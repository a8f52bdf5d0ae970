"""Tools as callers give them; tests/jaxinfer/test_llm_chat.py has what is wrong about their shape."""

from types import MappingProxyType

import pytest

from jaxinfer.tool_calls import check_tools


def function(name):
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize("name", ["f", "F-1_", "-", "a" * 64])
def test_names_that_openais_api_takes(name):
    check_tools([function(name), function("another")])


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a\n", "é", "a" * 65, "f</tool_call>", None, 5])
def test_a_name_that_it_does_not_take_is_refused(name):
    with pytest.raises(ValueError) as caught:
        check_tools([function("f"), function(name)])
    shown = repr(name) if len(repr(name)) < 30 else "'aaaaaaaaaaaa...aaaaaaaaaaaaa'"
    allowed = "1 to 64 of the letters a to z and A to Z, digits, _ and -"
    assert str(caught.value) == f"tools[1]['function']['name'] is {shown}; it must be {allowed}"


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ValueError) as caught:
        check_tools([function("f"), function("g"), function("g")])
    assert str(caught.value) == "tools[1] and tools[2] are both named 'g'; names must differ"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1}, b"x", MappingProxyType({})])
def test_what_is_no_json_is_refused(value):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"default": value}}}
    with pytest.raises(ValueError, match=r"^tools\[1\] is .*; it cannot be written as JSON: "):
        check_tools([function("g"), tool])


def test_a_tool_that_holds_itself_is_refused():
    tool = function("f")
    tool["function"]["parameters"] = tool
    with pytest.raises(ValueError, match=r"tools\[0\] .* cannot be written as JSON"):
        check_tools([tool])
