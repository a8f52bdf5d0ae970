"""Conversations as the official client of OpenAI's API sees them; what is expected is what the Python API gives."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel

from jaxinfer.detokenizer import IncrementalDetokenizer
from jaxinfer.llm import LLM
from jaxinfer.outputs import RequestOutput, ToolCall
from jaxinfer.tool_calls.qwen import QWEN
from tests.engines import greedy, one_program
from tests.servers import MODEL, RunningServer, serving

HI: Any = [{"role": "user", "content": "Once upon a time"}]
GREEDY: Any = {"model": MODEL, "messages": HI, "temperature": 0, "max_tokens": 12}


class Feeling(Enum):
    """Of which the schema has a reference."""

    HAPPY = "happy"
    SAD = "sad"


class Mood(BaseModel):
    """How someone is."""

    mood: Feeling


TOOL = openai.pydantic_function_tool(Mood, name="tell", description="Tells it.")
NOTHING: Any = {"type": "function", "function": {"name": "nothing"}}


@dataclass(frozen=True)
class Chat:
    """A server, a client of it, and what the Python API answered before it was started."""

    server: RunningServer
    client: OpenAI
    expected: RequestOutput


@pytest.fixture(scope="module")
def chat(shared_data: Path) -> Iterator[Chat]:
    with one_program():
        llm = LLM(shared_data / "stories260K-hf", max_num_seqs=4, max_chunk_tokens=32, max_model_len=128)
    llm.tokenizer.chat_template = "{{ messages[0].content }}{% for tool in tools or [] %} {% endfor %}"
    [expected] = llm.chat(HI, greedy(12, logprobs=2))
    with serving(llm) as server, OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        yield Chat(server, client, expected)


def joined(chunks: list[ChatCompletionChunk], index: int = 0) -> str:
    """The text of one choice."""
    choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
    return "".join(choice.delta.content or "" for choice in choices)


def wait_until_idle(server: RunningServer) -> None:
    """Fails where requests, or pages of theirs, are left for more than a second."""
    scheduler, deadline = server.llm.engine.scheduler, time.monotonic() + 1
    while server.llm.engine.has_unfinished or scheduler.num_running or scheduler.num_waiting:
        assert time.monotonic() < deadline, "requests are left"
        time.sleep(0.01)


def test_the_answer_is_that_of_the_python_api(chat: Chat) -> None:
    whole = chat.client.chat.completions.create(**GREEDY)
    expected = chat.expected.outputs[0]
    [choice] = whole.choices
    assert (whole.object, whole.model, choice.index) == ("chat.completion", MODEL, 0)
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", expected.text, "length")
    assert choice.message.refusal is choice.message.tool_calls is choice.logprobs is None
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (len(chat.expected.prompt_token_ids), 12)


def test_a_stream_begins_with_the_role_and_ends_with_the_reason(chat: Chat) -> None:
    chunks = list(chat.client.chat.completions.create(**GREEDY, stream=True))
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.object == "chat.completion.chunk" and chunk.usage is None for chunk in chunks)
    first, *middle, last = [choice for chunk in chunks for choice in chunk.choices]
    assert (first.delta.role, first.delta.content) == ("assistant", "")
    assert all(choice.delta.content and choice.delta.role is None for choice in middle)
    assert last.delta.model_dump(exclude_none=True) == {}
    assert [choice.finish_reason for choice in (first, *middle, last)] == [None] * (len(middle) + 1) + ["length"]
    assert joined(chunks) == chat.expected.outputs[0].text


def test_tokens_are_counted_in_a_stream_where_that_is_asked(chat: Chat) -> None:
    *chunks, last = chat.client.chat.completions.create(**GREEDY, stream=True, stream_options={"include_usage": True})
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.completion_tokens, last.usage.total_tokens) == (12, 12 + len(chat.expected.prompt_token_ids))


def test_several_choices_stream_as_they_are_given_whole(chat: Chat) -> None:
    drawn = GREEDY | {"temperature": 1.0, "seed": 3, "n": 3, "max_tokens": 20}
    whole = chat.client.chat.completions.create(**drawn)
    chunks = list(chat.client.chat.completions.create(**drawn, stream=True))
    texts = [choice.message.content for choice in whole.choices]
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    assert len(set(texts)) == 3, "the example needs three texts"
    assert [joined(chunks, index) for index in range(3)] == texts
    ends = {choice.index: choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason}
    assert ends == {choice.index: choice.finish_reason for choice in whole.choices}


def test_log_probabilities(chat: Chat) -> None:
    asked = GREEDY | {"logprobs": True, "top_logprobs": 2}
    whole = chat.client.chat.completions.create(**asked).choices[0]
    stream = [choice for chunk in chat.client.chat.completions.create(**asked, stream=True) for choice in chunk.choices]
    assert whole.logprobs is not None
    content = whole.logprobs.content
    assert content is not None
    told = [choice.logprobs.content or [] for choice in stream if choice.logprobs is not None]
    assert [token for tokens in told for token in tokens] == content
    expected = chat.expected.outputs[0]
    assert expected.logprobs is not None
    assert [token.logprob for token in content] == pytest.approx(
        [told[token_id].logprob for told, token_id in zip(expected.logprobs, expected.token_ids, strict=True)], abs=1e-5
    )
    assert bytes(byte for token in content for byte in token.bytes or []).decode() == whole.message.content
    for token in content:
        assert [top.logprob for top in token.top_logprobs] == sorted(top.logprob for top in token.top_logprobs)[::-1]
        assert (len(token.top_logprobs), token.top_logprobs[0].token) == (2, token.token)  # since it is greedy
    plain = chat.client.chat.completions.create(**GREEDY, logprobs=True).choices[0].logprobs
    assert plain is not None
    assert [token.top_logprobs for token in plain.content or []] == [[]] * 12


def test_answers_are_held_to_a_schema(chat: Chat) -> None:
    held = GREEDY | {"max_tokens": 30, "response_format": Mood}
    parsed = chat.client.chat.completions.parse(**held)
    assert isinstance(parsed.choices[0].message.parsed, Mood)
    with chat.client.chat.completions.stream(**held) as stream:
        assert stream.get_final_completion().choices[0].message == parsed.choices[0].message
    [cut] = chat.client.chat.completions.create(
        **GREEDY | {"messages": [{"role": "user", "content": "Once"}], "response_format": {"type": "json_object"}}
    ).choices
    assert (cut.message.content or "").startswith("{")
    assert cut.finish_reason == "length"


@pytest.mark.parametrize(
    ("tool_choice", "name", "arguments", "reason"),
    [
        ("required", None, None, "tool_calls"),
        ({"type": "function", "function": {"name": "tell"}}, "tell", None, "stop"),
        ({"type": "function", "function": {"name": "nothing"}}, "nothing", "{}", "stop"),
    ],
)
def test_a_call_that_has_to_be_made_is_made(
    chat: Chat, tool_choice: Any, name: str | None, arguments: str | None, reason: str
) -> None:
    """By a model that has never heard of tools."""
    asked = GREEDY | {"max_tokens": 60, "tools": [TOOL, NOTHING], "tool_choice": tool_choice}
    [whole] = chat.client.chat.completions.create(**asked).choices
    [call] = whole.message.tool_calls or []
    assert call.type == "function"
    assert (whole.message.content, whole.finish_reason) == (None, reason)
    assert call.function.name in ({name} if name else {"tell", "nothing"})
    assert call.function.name == "nothing" or Mood.model_validate_json(call.function.arguments)
    assert arguments is None or call.function.arguments == arguments
    chunks = list(chat.client.chat.completions.create(**asked, stream=True))
    choices = [choice for chunk in chunks for choice in chunk.choices]
    [[streamed]] = [choice.delta.tool_calls for choice in choices if choice.delta.tool_calls]
    assert (streamed.index, streamed.function and streamed.function.model_dump()) == (0, call.function.model_dump())
    assert (joined(chunks), choices[-1].finish_reason) == ("", reason)


def test_a_call_that_is_cut_off_is_text(chat: Chat) -> None:
    asked = GREEDY | {"max_tokens": 5, "tools": [TOOL], "tool_choice": "required"}
    [whole] = chat.client.chat.completions.create(**asked).choices
    assert (whole.message.content or "").startswith("{")
    assert (whole.message.tool_calls, whole.finish_reason) == (None, "length")
    assert joined(list(chat.client.chat.completions.create(**asked, stream=True))) == whole.message.content


class _CallsAtTheEnd(IncrementalDetokenizer):
    """Makes two calls of every answer, in place of a model that was trained to write them."""

    def __init__(self, tokenizer: Any, prompt_token_ids: Any, tool_format: Any, **guards: Any) -> None:
        super().__init__(tokenizer, prompt_token_ids, **guards)

    def finish(self, *, is_whole: bool = True) -> str:
        self.tool_calls = (ToolCall("callnum01", "tell", '{"mood":"sad"}'), ToolCall("callnum02", "nothing", "{}"))
        return super().finish(is_whole=is_whole)


def test_calls_that_the_model_makes_by_itself(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    """What calls look like is tested in tests/jaxinfer/tool_calls."""
    monkeypatch.setattr(chat.server.llm.renderer, "_tool_format", QWEN, raising=False)
    monkeypatch.setattr("jaxinfer.intake.ToolCallDetokenizer", _CallsAtTheEnd)
    asked = GREEDY | {"tools": [TOOL, NOTHING]}
    parsed = chat.client.chat.completions.create(**asked)
    [whole] = parsed.choices
    assert [(call.id, call.function.name) for call in whole.message.tool_calls or [] if call.type == "function"] == [
        ("callnum01", "tell"),
        ("callnum02", "nothing"),
    ]
    assert whole.finish_reason == "tool_calls"
    with chat.client.chat.completions.stream(**asked) as stream:
        final = stream.get_final_completion().choices[0]
    assert (final.message.content, final.finish_reason) == (whole.message.content, "tool_calls")
    assert [call.id for call in final.message.tool_calls or []] == ["callnum01", "callnum02"]
    [single] = chat.client.chat.completions.create(**asked, parallel_tool_calls=False).choices
    assert [call.id for call in single.message.tool_calls or []] == ["callnum01"]
    [none] = chat.client.chat.completions.create(**asked, tool_choice="none").choices
    assert (none.message.tool_calls, none.message.content) == (None, chat.expected.outputs[0].text)


@pytest.mark.parametrize(
    ("wrong", "kind", "param", "words"),
    [
        ({"model": "other"}, openai.NotFoundError, "model", "there is no model 'other'"),
        ({"messages": []}, openai.BadRequestError, None, "messages is []"),
        ({"messages": [{"role": "user", "content": "a" * 1000}]}, openai.BadRequestError, None, "128"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}]},
            openai.BadRequestError,
            None,
            "parts that are text",
        ),
        ({"temperature": -1}, openai.BadRequestError, "temperature", "temperature is -1"),
        ({"extra_body": {"temprature": 1}}, openai.BadRequestError, "temprature", "no field 'temprature'"),
        ({"n": 1000}, openai.BadRequestError, "n", "1000 sequences"),
    ],
)
def test_errors_are_those_that_the_client_knows(
    chat: Chat, wrong: dict[str, Any], kind: type[openai.APIStatusError], param: str | None, words: str
) -> None:
    for stream in (False, True):
        with pytest.raises(kind) as caught:
            chat.client.chat.completions.create(**GREEDY | wrong, stream=stream)
        assert words in str(caught.value)
        assert caught.value.param == param


def test_a_model_without_a_form_of_conversations_says_so(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat.server.llm.tokenizer, "chat_template", None)
    with pytest.raises(openai.BadRequestError, match="no chat template"):
        chat.client.chat.completions.create(**GREEDY)


def test_a_stream_that_its_client_leaves_ends_at_once(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, scheduler = chat.server.llm.engine, chat.server.llm.engine.scheduler
    step, free = engine.step, scheduler.num_free_pages
    monkeypatch.setattr(engine, "step", lambda: time.sleep(0.02) or step())  # so that all of it takes two seconds
    long = GREEDY | {"max_tokens": 120, "n": 4, "extra_body": {"ignore_eos": True}}
    with chat.client.chat.completions.create(**long, stream=True) as stream:
        next(iter(stream))
    wait_until_idle(chat.server)
    assert scheduler.num_free_pages == free
