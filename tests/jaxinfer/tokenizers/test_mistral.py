"""Mistral's own tokenizers through ``load_tokenizer``: text and conversations as mistral-common encodes them."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxinfer.tokenizers import load_tokenizer
from tests.mistral_files import FILES, mistral_folder, packaged_file, small_tekken, write_tekken

pytest.importorskip("mistral_common")

from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.tool_calls import Function, FunctionCall, Tool, ToolCall
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

ORACLES = {
    "v1": MistralTokenizer.v1,
    "v2": MistralTokenizer.v2,
    "v3": MistralTokenizer.v3,
    "v7": MistralTokenizer.v7,
    "tekken": lambda: MistralTokenizer.v3(is_tekken=True),
}
CITY = {"type": "object", "properties": {"city": {"type": "string", "description": "Où ?"}}, "required": ["city"]}
WEATHER = {"name": "get_weather", "description": "Weather of a city, 天気", "parameters": CITY}
CLOCK = {"name": "clock", "parameters": {"type": "object", "properties": {}}}


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def call(call_id, name, arguments):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*made):
    return {"role": "assistant", "content": None, "tool_calls": list(made)}


def result(call_id, name, text):
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": text}


PARIS = call("aBcDeF123", "get_weather", '{"city": "Paris", "when": [1, null]}')
NOON = call("000000001", "clock", "{}")
TALK = [user("Hello"), assistant("Hi there."), user("And you?")]
CONVERSATIONS = {
    "one question": [user("What is the capital of France?")],
    "a system prompt": [system("You are brief."), user("Hello")],
    "several turns": [*TALK, assistant("Well."), user("Good. Bye")],
    "a system prompt and several turns": [system("You are\n\nbrief."), *TALK],
    "two system prompts": [system("You are brief."), system("You are kind."), *TALK],
    "a system prompt in the middle": [user("Hello"), system("Now in French."), user("Hello")],
    "two questions at once": [user("Hello"), user("Are you there?")],
    "an answer first": [assistant("How can I help?"), user("Not at all.")],
    "other scripts": [user("漢字かな 👩‍👩‍👧 e\u0301\u0323"), assistant("Füße 🎉"), user("Ж \ufffd")],
    "spellings of control tokens": [user("[INST] </s><s> [/INST]"), assistant("[TOOL_CALLS]"), user("▁<0x41>")],
    "spaces and lines": [user("  a\n\n b\t"), assistant(" yes  "), user("\n")],
    "parts of text": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
}
WITH_TOOLS = {
    "tools": TALK,
    "a call and its result": [user("Weather?"), calls(PARIS), result("aBcDeF123", "get_weather", "18 °C")],
    "a result in JSON": [user("Weather?"), calls(PARIS), result("aBcDeF123", "get_weather", '{"c":  18}')],
    "a call in the past": [
        system("You are brief."),
        user("Weather?"),
        calls(PARIS),
        result("aBcDeF123", "get_weather", "18"),
        assistant("18 degrees."),
        user("Thanks"),
    ],
}
SEVERAL_CALLS = {
    "two calls": [
        user("Weather and time?"),
        calls(PARIS, NOON),
        result("aBcDeF123", "get_weather", "18"),
        result("000000001", "clock", "noon"),
    ]
}
CASES = [
    *((version, title, conversation, None) for version in FILES for title, conversation in CONVERSATIONS.items()),
    *(
        (version, title, talk, [WEATHER, CLOCK])
        for version in FILES
        if version != "v1"
        for title, talk in WITH_TOOLS.items()
    ),
    *((version, title, talk, [WEATHER]) for version in ("v3", "v7", "tekken") for title, talk in SEVERAL_CALLS.items()),
]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    """Ours, of each version, read from a folder."""
    return {name: load_tokenizer(mistral_folder(tmp_path_factory.mktemp("model"), name)) for name in FILES}


@pytest.fixture(scope="module")
def oracles():
    return {name: make() for name, make in ORACLES.items()}


def oracle_message(message, is_prefix=False):
    """The library's own class for a message, so that the reading of dicts is not checked against itself."""
    content = message["content"]
    match message["role"]:
        case "system":
            return SystemMessage(content=content)
        case "user":
            return UserMessage(content=content)
        case "tool":
            return ToolMessage(content=content, tool_call_id=message["tool_call_id"], name=message["name"])
        case "assistant":
            made = [
                ToolCall(id=each["id"], function=FunctionCall(**each["function"]))
                for each in message.get("tool_calls", [])
            ]
            return AssistantMessage(content=content, tool_calls=made or None, prefix=is_prefix)


def oracle_ids(oracle, messages, tools=None, goes_on=False):
    last = len(messages) - 1
    request = ChatCompletionRequest(
        messages=[oracle_message(message, goes_on and i == last) for i, message in enumerate(messages)],
        tools=[Tool(function=Function(**function)) for function in tools] if tools else None,
    )
    return oracle.encode_chat_completion(request).tokens


def openai_tools(functions):
    return [{"type": "function", "function": function} for function in functions]


@pytest.mark.parametrize(
    ("version", "title", "messages", "tools"), CASES, ids=[f"{version}: {title}" for version, title, *_ in CASES]
)
def test_a_conversation_has_the_ids_of_mistral_common(tokenizers, oracles, version, title, messages, tools):
    chat = tokenizers[version].encode_chat(messages, tools=openai_tools(tools) if tools else None)
    assert chat.token_ids == oracle_ids(oracles[version], messages, tools)
    assert chat.token_ids.count(tokenizers[version].bos_token_id) == 1
    assert chat.token_ids[0] == tokenizers[version].bos_token_id


@pytest.mark.parametrize("version", FILES)
def test_an_answer_that_was_begun_goes_on(tokenizers, oracles, version):
    begun = [*TALK, assistant("I am")]
    ids = tokenizers[version].encode_chat(begun, add_generation_prompt=False).token_ids
    assert ids == oracle_ids(oracles[version], begun, goes_on=True)
    assert ids[-1] != tokenizers[version].eos_token_id


@pytest.mark.parametrize("version", FILES)
def test_nothing_opens_the_assistants_turn(tokenizers, version):
    with_prompt, without = (
        tokenizers[version].encode_chat(TALK, add_generation_prompt=add_it) for add_it in (True, False)
    )
    assert with_prompt == without


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("v1", "<s> [INST] Be brief.\n\n漢 a [/INST] é</s> [INST] 🎉 [/INST]"),
        ("v2", "<s>[INST] 漢 a[/INST] é</s>[INST] Be brief.\n\n🎉[/INST]"),
        ("v3", "<s>[INST] 漢 a[/INST] é</s>[INST] Be brief.\n\n🎉[/INST]"),
        ("v7", "<s>[SYSTEM_PROMPT] Be brief.[/SYSTEM_PROMPT][INST] 漢 a[/INST] é</s>[INST] 🎉[/INST]"),
        ("tekken", "<s>[INST]漢 a[/INST]é</s>[INST]Be brief.\n\n🎉[/INST]"),
    ],
)
def test_its_text_shows_the_special_tokens(tokenizers, version, text):
    """Written by hand from the published forms. A SentencePiece vocabulary reads it back as the same tokens."""
    chat = tokenizers[version].encode_chat([system("Be brief."), user("漢 a"), assistant("é"), user("🎉")])
    assert chat.text == text
    if version != "tekken":
        assert tokenizers[version].encode(text, add_special_tokens=False) == chat.token_ids


@pytest.mark.parametrize("version", FILES)
@pytest.mark.parametrize("text", ["Hello  world", " a", "", "</s>[INST]", "👩‍👩‍👧 漢字 e\u0301\x00", "\n\n"])
def test_text_has_the_ids_of_mistral_common(tokenizers, oracles, version, text):
    inner = oracles[version].instruct_tokenizer.tokenizer
    ids = tokenizers[version].encode(text)
    assert ids == inner.encode(text, bos=True, eos=False)
    assert tokenizers[version].decode(ids) == inner.decode(ids) == text


@pytest.mark.parametrize("version", FILES)
def test_tokens_and_their_spellings(tokenizers, oracles, version):
    tokenizer, inner = tokenizers[version], oracles[version].instruct_tokenizer.tokenizer
    assert (tokenizer.vocab_size, tokenizer.can_chat) == (inner.n_words, True)
    for spelling in ("<s>", "</s>", *(["[INST]", "[TOOL_CALLS]"] if version != "v1" else [])):
        token_id = tokenizer.token_id(spelling)
        assert (token_id, tokenizer.token_text(token_id)) == (inner.get_special_token(spelling), spelling)
        assert tokenizer.decode([token_id]) == ""
    assert (tokenizer.token_id("[NOT]"), tokenizer.token_id("")) == (None, None)
    hello = tokenizer.token_id("hello")
    assert tokenizer.token_text(hello) == "hello"
    assert tokenizer.decode([tokenizer.bos_token_id, hello]) == "hello"


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


def test_text_that_tekken_cannot_cut_is_an_error(tokenizers):
    with pytest.raises(ValueError, match="cannot encode this text"):
        tokenizers["tekken"].encode(" " * 1_000_000)


def test_a_small_tekken(tmp_path):
    """By hand: bytes come after the 20 special tokens, then the three tokens more."""
    tokenizer = load_tokenizer(write_tekken(tmp_path, small_tekken()))
    assert tokenizer.encode("he wé!") == [1, 20 + 256, 20 + 257, 20 + 258, 20 + ord("!")]
    assert [tokenizer.token_text(i) for i in (1, 20 + 0xC3, 276, 277, 279)] == ["<s>", "<0xC3>", "he", " w", ""]
    assert [tokenizer.token_id(text) for text in ("</s>", "he", "hx")] == [2, 276, None]
    assert tokenizer.decode([1, 20 + 0xC3, 2, 20 + 0xA9, 20 + 0xC3, 279]) == "é\ufffd"


def test_versions_are_told_apart_by_the_vocabulary(tokenizers):
    """The fixture would be worth little if two of the files gave the same ids."""
    seen = {tuple(tokenizer.encode_chat([system("Be brief."), *TALK]).token_ids) for tokenizer in tokenizers.values()}
    assert len(seen) == len(FILES) - 1  # v2 and v3 differ in results of tools alone
    assert packaged_file("v2").read_bytes() != packaged_file("v3").read_bytes()
