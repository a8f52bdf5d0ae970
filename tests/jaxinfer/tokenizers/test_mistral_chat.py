"""Conversations with Mistral's own tokenizers have the ids of mistral-common."""

import pytest

from tests.mistral_conversations import (
    CLOCK,
    CONVERSATIONS,
    SEVERAL_CALLS,
    TALK,
    WEATHER,
    WITH_TOOLS,
    assistant,
    openai_tools,
    system,
    user,
)
from tests.mistral_files import FILES, load_oracles, load_versions, packaged_file

pytest.importorskip("mistral_common")

from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.tool_calls import Function, FunctionCall, Tool, ToolCall

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
    return load_versions(tmp_path_factory)


@pytest.fixture(scope="module")
def oracles():
    return load_oracles()


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


@pytest.mark.parametrize(
    ("version", "title", "messages", "tools"), CASES, ids=[f"{version}: {title}" for version, title, *_ in CASES]
)
def test_a_conversation_has_the_ids_of_mistral_common(tokenizers, oracles, version, title, messages, tools):
    chat = tokenizers[version].encode_chat(messages, tools=openai_tools(tools) if tools else None)
    assert chat.token_ids == oracle_ids(oracles[version], messages, tools)
    assert chat.token_ids.count(tokenizers[version].bos_token_id) == 1
    assert chat.token_ids[0] == tokenizers[version].bos_token_id


@pytest.mark.parametrize("title", [title for title in CONVERSATIONS if title != "spellings of control tokens"])
@pytest.mark.parametrize("version", [version for version in FILES if version != "tekken"])
def test_its_text_is_read_as_the_same_tokens(tokenizers, version, title):
    """As a template's text would be: one space after a control token, whatever the text begins with."""
    chat = tokenizers[version].encode_chat(CONVERSATIONS[title])
    assert tokenizers[version].encode(chat.text, add_special_tokens=False) == chat.token_ids


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


def test_versions_are_told_apart_by_the_vocabulary(tokenizers):
    """The fixture would be worth little if two of the files gave the same ids."""
    seen = {tuple(tokenizer.encode_chat([system("Be brief."), *TALK]).token_ids) for tokenizer in tokenizers.values()}
    assert len(seen) == len(FILES) - 1  # v2 and v3 differ in results of tools alone
    assert packaged_file("v2").read_bytes() != packaged_file("v3").read_bytes()
