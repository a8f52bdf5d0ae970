"""Histories with other programs' ids of calls, or with none, as mistral-common can take them."""

import re

import pytest

from jaxinfer.tokenizers.mistral_messages import prepared_messages


def call(name="f", **more):
    return {"type": "function", "function": {"name": name, "arguments": "{}"}, **more}


def calls(*made):
    return {"role": "assistant", "content": None, "tool_calls": list(made)}


def result(**more):
    return {"role": "tool", "content": "1", **more}


def ids(messages):
    """Of calls and of results, in order."""
    given = [call["id"] for message in messages for call in message.get("tool_calls") or []]
    return given, [message["tool_call_id"] for message in messages if message["role"] == "tool"]


def test_what_the_library_takes_stays_as_it_is():
    messages = [
        {"role": "system", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b"}]},
        calls(call("f", id="aB3456789"), call("g", id="000000000")),
        result(tool_call_id="aB3456789", name="f"),
        result(tool_call_id="000000000", name="g"),
        {"role": "assistant", "content": "c", "tool_calls": None},
    ]
    assert prepared_messages(messages) == messages


@pytest.mark.parametrize(
    "foreign", ["call_1", "call_J9kXxv0qPz5m2", "12345678", "1234567890", "aB-456789", "日本語日本語日本語", "null"]
)
def test_a_foreign_id_becomes_nine_letters_and_digits_that_still_meet(foreign):
    messages = [calls(call("f", id="other"), call("g", id=foreign)), result(tool_call_id=foreign)]
    (other, made), [answered] = ids(prepared_messages(messages))
    assert made == answered != other
    assert re.fullmatch("[a-zA-Z0-9]{9}", made)
    assert ids(prepared_messages(messages)) == ids(prepared_messages(messages * 2)[:2])


@pytest.mark.parametrize("missing", [{}, {"id": None}, {"id": ""}])
def test_results_without_ids_answer_the_calls_in_their_order(missing):
    messages = [
        calls(call("f", **missing), call("g", **missing)),
        result(),
        result(),
        calls(call("h", **missing)),
        result(),
    ]
    prepared = prepared_messages(messages)
    made, answered = ids(prepared)
    assert made == answered
    assert len(set(made)) == 3
    assert [message["name"] for message in prepared if message["role"] == "tool"] == ["f", "g", "h"]


def test_a_result_gets_the_name_of_its_call():
    messages = [
        calls(call("f", id="1"), call("g", id="2")),
        result(tool_call_id="2"),
        result(tool_call_id="1", name="mine"),
    ]
    assert [message["name"] for message in prepared_messages(messages)[1:]] == ["g", "mine"]


def test_the_given_messages_are_not_changed():
    messages = [calls(call(id="1")), result(tool_call_id="1")]
    before = repr(messages)
    prepared_messages(messages)
    assert repr(messages) == before


IMAGE = {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}
ONE = {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "messages is"),
        ("Hello", "messages is"),
        ({"role": "user"}, "messages is"),
        (["Hello"], r"messages\[0\] is 'Hello'"),
        ([{"content": "a"}], r"messages\[0\]\['role'\] is None"),
        ([ONE, {"role": "user"}], r"messages\[1\]\['content'\] is None"),
        ([{"role": "user", "content": [IMAGE]}], r"messages\[0\]\['content'\] is .*image_url"),
        ([{"role": "user", "content": [{**IMAGE, "text": "a"}]}], r"messages\[0\]\['content'\] is .*image_url"),
        ([{"role": "user", "content": [{"type": "text", "text": 1}]}], r"messages\[0\]\['content'\]"),
        ([ONE, {"role": "assistant", "content": None, "tool_calls": []}], r"messages\[1\]\['content'\] is None"),
        ([ONE, {"role": "assistant", "tool_calls": "f()"}], r"messages\[1\]\['tool_calls'\] is 'f\(\)'"),
        ([ONE, calls("f()")], r"messages\[1\]\['tool_calls'\]\[0\] is 'f\(\)'"),
        ([ONE, calls({"id": "1", "function": {"arguments": "{}"}})], "'name'"),
        ([ONE, calls(call(id=1))], r"\[0\]\['id'\] is 1; it must be text"),
        ([ONE, calls({"function": {"name": "f", "arguments": [1]}})], r"\['arguments'\] is \[1\]"),
        ([ONE, calls(call(id="1")), result(tool_call_id=1)], r"messages\[2\]\['tool_call_id'\] is 1"),
        ([ONE, result()], r"messages\[1\] is the result .* no call waits"),
        ([ONE, calls(call()), result(), result()], r"messages\[3\] is the result"),
        ([ONE, calls(call()), ONE, result()], r"messages\[3\] is the result"),
    ],
)
def test_what_is_no_conversation_is_named(messages, words):
    with pytest.raises(ValueError, match=words):
        prepared_messages(messages)
