"""What is no conversation that a version of Mistral's knows is a ValueError, in the words of mistral-common."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.mistral_conversations import (
    CLOCK,
    PARIS,
    TALK,
    WEATHER,
    assistant,
    call,
    calls,
    openai_tools,
    result,
    system,
    user,
)
from tests.mistral_files import FILES, load_versions

pytest.importorskip("mistral_common")


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    return load_versions(tmp_path_factory)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([*TALK, assistant("Well.")], "Expected last role User or Tool"),
        ([assistant("Hello")], "Conversation must start with a user message or system message"),
        ([system("a"), result("aBcDeF123", "f", "1")], "Unexpected role 'tool' after role 'system'"),
        ([{"role": "narrator", "content": "a"}], "Unknown message role: narrator"),
        ([user("a"), calls(PARIS), assistant("b"), user("c")], "Not the same number of function calls and responses"),
        (
            [user("a"), calls(call("aBcDeF123", "no name", "{}")), result("aBcDeF123", "f", "1")],
            "Function name was no name",
        ),
        ([user("a\ud83e")], "lone surrogate"),
        ([user("a"), {**calls(PARIS), "content": "b"}, result("aBcDeF123", "f", "1")], "not both"),
    ],
)
def test_a_bad_conversation_is_refused_in_the_librarys_words(tokenizers, messages, words):
    with pytest.raises(ValueError, match=f"does not fit Mistral's form v3: .*{words}"):
        tokenizers["v3"].encode_chat(messages)


def test_tuples_are_as_good_as_lists(tokenizers):
    content = ({"type": "text", "text": "a"}, {"type": "text", "text": "b"})
    called, answered = calls(PARIS), result("aBcDeF123", "f", "1")
    [listed, given] = [
        [user(kind(content)), {**called, "tool_calls": kind(called["tool_calls"])}, answered] for kind in (list, tuple)
    ]
    assert tokenizers["v3"].encode_chat(given) == tokenizers["v3"].encode_chat(listed)


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        (["weather"], "does not fit"),
        ([{"type": "function"}], "function"),
        (openai_tools([{"name": "a b", "parameters": {}}]), "Function name was a b"),
        (openai_tools([{"name": "f", "parameters": {"type": 3}}]), "Invalid tool schema"),
        (openai_tools([{"name": "f", "description": "\ud83e"}]), "lone surrogate"),
    ],
)
def test_bad_tools_are_refused(tokenizers, tools, words):
    with pytest.raises(ValueError, match=words):
        tokenizers["v3"].encode_chat(TALK, tools=tools)


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just("{}"))
KEYS = [
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "id",
    "name",
    "function",
    "arguments",
    "type",
    "text",
    "prefix",
]
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)),
    max_leaves=8,
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool", "developer"])},
    optional={"content": st.one_of(st.text(max_size=3), JSON), "tool_call_id": JSON, "name": JSON}
    | {"tool_calls": st.one_of(st.just([PARIS]), st.lists(st.fixed_dictionaries({"function": JSON, "id": JSON})), JSON)}
    | {"reasoning_content": JSON, "prefix": JSON},
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    version=st.sampled_from([*FILES]),
    messages=st.lists(MESSAGES, max_size=4),
    tools=st.one_of(st.none(), st.just(openai_tools([CLOCK])), st.lists(JSON, max_size=2)),
    add_generation_prompt=st.booleans(),
)
def test_any_conversation_is_encoded_or_refused(tokenizers, version, messages, tools, add_generation_prompt):
    """Half of what may come in is as OpenAI's API has it, half is not."""
    try:
        chat = tokenizers[version].encode_chat(messages, tools=tools, add_generation_prompt=add_generation_prompt)
    except ValueError:
        return
    assert chat.token_ids.count(tokenizers[version].bos_token_id) == 1


def test_the_first_version_has_no_tools(tokenizers):
    with pytest.raises(ValueError, match="v1, has no tools"):
        tokenizers["v1"].encode_chat(TALK, tools=openai_tools([WEATHER]))
    assert tokenizers["v1"].encode_chat(TALK, tools=[]) == tokenizers["v1"].encode_chat(TALK)


def test_options_are_known_by_name(tokenizers):
    with pytest.raises(ValueError, match="'enable_thinking' is no option"):
        tokenizers["tekken"].encode_chat(TALK, options={"enable_thinking": True})
    with pytest.raises(ValueError, match="reasoning_effort='high' is not supported for this model"):
        tokenizers["tekken"].encode_chat(TALK, options={"reasoning_effort": "high"})
    with pytest.raises(ValueError, match="reasoning_effort"):
        tokenizers["tekken"].encode_chat(TALK, options={"reasoning_effort": "as much as you can"})
