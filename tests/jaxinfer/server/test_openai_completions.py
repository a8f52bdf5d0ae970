"""Completions as OpenAI's own client sees them: what the Python API gives, whole and as a stream."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import Completion, CompletionChoice

from jaxinfer.llm import LLM
from jaxinfer.outputs import RequestOutput
from tests.engines import greedy, one_program
from tests.servers import MODEL, RunningServer, serving

ONCE, LILY = "Once upon a time", "Lily is"
KEY = "a-key"


@dataclass(frozen=True)
class Expected:
    """What the model gives through the Python API, asked before the server had it."""

    greedy: list[RequestOutput]
    told: RequestOutput
    log_likelihood: float


@pytest.fixture(scope="module")
def llm(shared_data: Path) -> LLM:
    with one_program():
        return LLM(shared_data / "stories260K-hf", max_num_seqs=4, max_chunk_tokens=32, max_model_len=128)


@pytest.fixture(scope="module")
def expected(llm: LLM) -> Expected:
    return Expected(
        greedy=llm.generate([ONCE, LILY], greedy(12)),
        told=llm.generate([ONCE], greedy(5, logprobs=3, prompt_logprobs=3))[0],
        log_likelihood=llm.score(ONCE)[0].log_likelihood,
    )


@pytest.fixture(scope="module")
def server(llm: LLM, expected: Expected) -> Iterator[RunningServer]:
    with serving(llm, api_key=KEY, max_sequences=8) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def joined(chunks: Sequence[Completion]) -> list[dict[str, Any]]:
    """The choices that the chunks of a stream tell piece by piece."""
    choices: dict[int, dict[str, Any]] = {}
    for piece in (choice for chunk in chunks for choice in chunk.choices):
        choice = choices.setdefault(piece.index, {"text": "", "finish_reason": None, "token_ids": [], "logprobs": {}})
        assert choice["finish_reason"] is None, "nothing comes after the reason"
        choice["text"] += piece.text
        choice["finish_reason"] = piece.finish_reason
        choice["token_ids"] += piece.token_ids or []
        for name, values in piece.logprobs or ():
            choice["logprobs"].setdefault(name, []).extend(values)
    return [choices[index] for index in sorted(choices)]


def whole(choice: CompletionChoice) -> dict[str, Any]:
    return {
        "text": choice.text,
        "finish_reason": choice.finish_reason,
        "token_ids": choice.token_ids or [],
        "logprobs": dict(choice.logprobs or ()),
    }


def test_several_prompts_are_answered_as_by_the_python_api(client: openai.OpenAI, expected: Expected) -> None:
    answer = client.completions.create(model=MODEL, prompt=[ONCE, LILY], max_tokens=12, temperature=0)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert [choice.text for choice in answer.choices] == [output.outputs[0].text for output in expected.greedy]
    assert {choice.finish_reason for choice in answer.choices} == {"length"}
    num_prompt_tokens = sum(len(output.prompt_token_ids) for output in expected.greedy)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (num_prompt_tokens, 24)
    assert answer.usage.total_tokens == num_prompt_tokens + 24
    assert (answer.object, answer.model) == ("text_completion", MODEL)
    assert answer.system_fingerprint.startswith("jaxinfer-")


def test_a_prompt_may_be_token_ids_and_16_tokens_are_the_default(client: openai.OpenAI, expected: Expected) -> None:
    ids = [output.prompt_token_ids for output in expected.greedy]
    one = client.completions.create(model=MODEL, prompt=ids[0], temperature=0)
    assert one.usage.completion_tokens == 16
    assert one.choices[0].text.startswith(expected.greedy[0].outputs[0].text)
    both = client.completions.create(
        model=MODEL, prompt=ids, max_tokens=12, temperature=0, echo=True, extra_body={"return_token_ids": True}
    )
    for choice, prompt, output in zip(both.choices, (ONCE, LILY), expected.greedy, strict=True):
        assert choice.text == prompt + output.outputs[0].text
        assert choice.token_ids == output.outputs[0].token_ids
        assert choice.prompt_token_ids == output.prompt_token_ids


@pytest.mark.parametrize("echo", [False, True])
def test_a_stream_joined_is_the_whole_answer(client: openai.OpenAI, echo: bool) -> None:
    """Of two prompts with two choices each, whose text is held back for a while since it may begin a stop string."""
    ask = {
        "model": MODEL,
        "prompt": [ONCE, LILY],
        "n": 2,
        "max_tokens": 24,
        "seed": 3,
        "temperature": 1.5,
        "logprobs": 2,
        "echo": echo,
        "stop": ["very long stop", " girl named", "."],
        "extra_body": {"return_token_ids": True, "include_stop_str_in_output": True},
    }
    answer = client.completions.create(**ask)
    *chunks, last = client.completions.create(**ask, stream=True, stream_options={"include_usage": True})
    assert joined(chunks) == [whole(choice) for choice in answer.choices]
    assert len({choice.text for choice in answer.choices}) == 4
    assert {choice.finish_reason for choice in answer.choices} == {"stop", "length"}
    assert (last.choices, last.usage.total_tokens) == ([], answer.usage.total_tokens)
    assert {chunk.usage for chunk in chunks} == {None}


def test_logprobs_are_those_of_the_python_api(client: openai.OpenAI, expected: Expected) -> None:
    answer = client.completions.create(model=MODEL, prompt=ONCE, max_tokens=5, temperature=0, logprobs=3, echo=True)
    [choice] = answer.choices
    told, output = expected.told, expected.told.outputs[0]
    token_ids, each = told.prompt_token_ids + output.token_ids, told.prompt_logprobs + output.logprobs
    lists = choice.logprobs
    assert lists.tokens == ["<s>"] + [of[i].decoded_token for i, of in zip(token_ids[1:], each[1:], strict=True)]
    own = [of[i].logprob for i, of in zip(token_ids[1:], each[1:], strict=True)]
    assert lists.token_logprobs == [None, *own]
    by_text = [{logprob.decoded_token: logprob.logprob for logprob in of.values()} for of in each[1:]]
    assert lists.top_logprobs == [None, *by_text]
    assert all(list(top.values()) == sorted(top.values(), reverse=True) for top in lists.top_logprobs[1:])
    begins = [*lists.text_offset, len(choice.text)]
    pieces = [choice.text[begins[i] : begins[i + 1]] for i in range(len(token_ids))]
    assert pieces == ["", "Once", *lists.tokens[2:]]


def test_a_prompt_is_scored_without_an_answer(client: openai.OpenAI, expected: Expected) -> None:
    answer = client.completions.create(model=MODEL, prompt=ONCE, max_tokens=0, echo=True, logprobs=0)
    [choice] = answer.choices
    assert (choice.text, choice.finish_reason, answer.usage.completion_tokens) == (ONCE, "length", 0)
    assert sum(choice.logprobs.token_logprobs[1:]) == pytest.approx(expected.log_likelihood, abs=1e-4)


def test_the_best_of_several_is_given(client: openai.OpenAI) -> None:
    """Each of the four is what n gives; the best has the highest log-probability per token."""
    ask = {"model": MODEL, "prompt": ONCE, "max_tokens": 8, "temperature": 2.0, "seed": 1, "logprobs": 0}
    four = client.completions.create(**ask, n=4)
    best = client.completions.create(**ask, n=1, best_of=4)
    means = {choice.text: sum(choice.logprobs.token_logprobs) / 8 for choice in four.choices}
    assert len(means) == 4
    assert [choice.text for choice in best.choices] == [max(means, key=means.get)]
    assert best.usage.completion_tokens == 32


def test_what_ended_it_is_told(client: openai.OpenAI, expected: Expected) -> None:
    ask = {"model": MODEL, "prompt": ONCE, "temperature": 0}
    by_text = client.completions.create(**ask, stop=" was").choices[0]
    assert (by_text.text, by_text.finish_reason, by_text.stop_reason) == (", there", "stop", " was")
    token_id = expected.greedy[0].outputs[0].token_ids[2]
    by_token = client.completions.create(**ask, extra_body={"stop_token_ids": [token_id]}).choices[0]
    assert (by_token.text, by_token.finish_reason, by_token.stop_reason) == (", there", "stop", token_id)


@pytest.mark.parametrize(
    ("wrong", "param", "words"),
    [
        ({"prompt": 3}, "prompt", "prompt is 3; it must be text, a list of texts, a list of token ids, or"),
        ({"prompt": []}, "prompt", "prompt is []; it must not be empty"),
        ({"prompt": ""}, "prompt", "prompt is ''; it must not be empty"),
        ({"prompt": [[]]}, "prompt", "prompt is [[]]; it must not be empty"),
        ({"suffix": "!"}, "suffix", "suffix is '!'; it must be left out"),
        ({"temperature": -1}, "temperature", "temperature is -1.0; it must be a number in"),
        ({"n": 9}, "n", "9 sequences"),
        ({"stream": True, "best_of": 2}, "best_of", "best_of is 2 and n 1"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream_options goes with stream: true"),
        ({"extra_body": {"temprature": 1}}, "temprature", "there is no field 'temprature'"),
        ({"prompt": "a" * 300}, None, "max_model_len is 128"),
    ],
)
def test_what_is_wrong_is_named(client: openai.OpenAI, wrong: dict[str, Any], param: str | None, words: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**({"model": MODEL, "prompt": ONCE} | wrong))
    assert words in caught.value.body["message"]
    assert (caught.value.param, caught.value.type) == (param, "invalid_request_error")


def test_a_prompt_that_is_too_long_is_told_by_code(client: openai.OpenAI) -> None:
    """Programs that cut a conversation and ask again look for it."""
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt="a" * 300)
    assert caught.value.code == "context_length_exceeded"


def test_errors_come_as_the_clients_classes(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no model 'other'"):
        client.completions.create(model="other", prompt=ONCE)
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="another").completions.create(model=MODEL, prompt=ONCE)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")
    assert client.models.retrieve(MODEL).id == client.models.list().data[0].id == MODEL


def test_a_stream_that_is_closed_frees_its_pages(client: openai.OpenAI, server: RunningServer) -> None:
    scheduler = server.llm.engine.scheduler
    stream = client.completions.create(
        model=MODEL, prompt=ONCE, max_tokens=120, stream=True, extra_body={"ignore_eos": True}
    )
    next(stream)
    stream.close()
    ends_at = time.monotonic() + 1
    while scheduler.num_running and time.monotonic() < ends_at:
        time.sleep(0.01)
    assert (scheduler.num_running, scheduler.num_free_pages) == (0, scheduler.num_pages)
