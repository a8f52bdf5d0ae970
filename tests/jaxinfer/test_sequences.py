"""Several sequences of one request: each is what a request of its own would be, and all together are one request."""

import itertools
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from jaxinfer.config import EngineConfig
from jaxinfer.engine import Engine
from jaxinfer.outputs import RequestOutput
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.seeds import sequence_seed
from jaxinfer.tokenizers.huggingface import HuggingFaceTokenizer
from jaxinfer.tool_calls import ToolCallFormat
from jaxinfer.tool_calls.mistral import MISTRAL
from tests.engines import finish, run_alone
from tests.fake_runner import VOCAB_SIZE, FakeStep, expected_tokens, logprob
from tests.fakes import fake_engine
from tests.jaxinfer.tool_calls.vocabulary import byte_tokenizer
from tests.scripted_runner import ScriptedRunner

PROMPT = list(range(20, 53))


def hot(max_tokens: int, **others: Any) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, **others)


def expected_sequences(prompt: Sequence[int], num_tokens: int, seed: int, n: int) -> list[list[int]]:
    return [expected_tokens(prompt, num_tokens, seed=sequence_seed(seed, index)) for index in range(n)]


def sequences(output: RequestOutput) -> list[list[int]]:
    assert [completion.index for completion in output.outputs] == list(range(len(output.outputs)))
    return [completion.token_ids for completion in output.outputs]


def assert_idle(engine: Engine, num_pages: int = 32) -> None:
    assert not engine.has_unfinished
    assert engine.scheduler.num_free_pages == (num_pages,)
    assert not engine._tracked
    assert not engine._owners
    assert not engine._attended


# ---- each is a request of its own ------------------------------------------------------------------------------------


def test_each_sequence_is_that_of_a_request_with_its_seed_and_the_first_is_that_of_n_1() -> None:
    engine = fake_engine()
    found = sequences(run_alone(engine, PROMPT, hot(8, n=4, seed=2**64 - 1)))
    assert found == expected_sequences(PROMPT, 8, 2**64 - 1, 4)
    assert len(set(map(tuple, found))) == 4
    assert sequences(run_alone(engine, PROMPT, hot(8, seed=2**64 - 1))) == found[:1]
    for index in range(4):
        assert sequences(run_alone(engine, PROMPT, hot(8, seed=sequence_seed(2**64 - 1, index)))) == [found[index]]
    assert_idle(engine)


def test_without_a_seed_they_differ_and_the_engines_seed_repeats_them() -> None:
    def answers(seed: int) -> list[list[list[int]]]:
        engine = fake_engine(seed=seed)
        return [sequences(run_alone(engine, PROMPT, hot(8, n=3))) for _ in range(2)]

    first = answers(1)
    assert len({tuple(tokens) for found in first for tokens in found}) == 6
    assert answers(1) == first
    assert answers(2) != first


def test_greedy_sequences_are_all_the_same() -> None:
    found = sequences(run_alone(fake_engine(), PROMPT, SamplingParams(temperature=0, max_tokens=5, n=3)))
    assert found == [expected_tokens(PROMPT, 5)] * 3


@pytest.mark.parametrize("num_kv_pages", [500, 24])
def test_in_any_load_each_request_gets_its_own_in_order(num_kv_pages: int) -> None:
    """More sequences than slots; in the small pool they are preempted one by one."""
    rng = random.Random(num_kv_pages)
    engine, wanted, outputs = fake_engine(num_kv_pages=num_kv_pages), {}, {}
    for i in range(25):
        prompt = [rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(1, 20))]
        num_tokens, n = rng.randint(0, 64 - len(prompt)), rng.choice([1, 1, 2, 9])
        wanted[str(i)] = expected_sequences(prompt, num_tokens, i, n)
        engine.add_request(str(i), prompt, hot(num_tokens, n=n, seed=i))
        for _ in range(rng.randint(0, 3)):
            outputs |= {output.request_id: output for output in engine.step()}
    outputs |= finish(engine)
    assert {name: sequences(output) for name, output in outputs.items()} == wanted
    assert (engine.scheduler.counters.num_resumptions > 0) == (num_kv_pages == 24)
    assert_idle(engine, num_kv_pages)


def test_they_share_the_pages_of_the_prompt() -> None:
    """33 tokens fill 8 pages of 4, which all but the first sequence find."""
    engine = fake_engine()
    output = run_alone(engine, PROMPT, hot(2, n=4, seed=0))
    counters = engine.scheduler.counters
    assert (counters.num_prompt_tokens, counters.num_cached_tokens) == (4 * 33, 3 * 32)
    assert output.usage is not None
    assert output.usage.cached_tokens == 0, "to the caller it is one prompt, and none of it was there before"
    again = run_alone(engine, PROMPT, hot(2, n=2, seed=0))
    assert again.usage is not None
    assert again.usage.cached_tokens == 32


# ---- together they are one request -----------------------------------------------------------------------------------


def test_usage_and_metrics_are_of_all() -> None:
    engine = fake_engine(max_num_seqs=2)
    output = run_alone(engine, PROMPT, hot(5, n=3, seed=0))
    assert output.usage is not None
    assert output.metrics is not None
    assert (output.usage.prompt_tokens, output.usage.completion_tokens) == (33, 15)
    metrics = output.metrics
    assert metrics.num_generated_tokens == 15
    assert metrics.first_scheduled_time is not None
    assert metrics.first_token_time is not None
    assert metrics.finished_time is not None
    assert metrics.arrival_time < metrics.first_scheduled_time < metrics.first_token_time < metrics.finished_time


def test_each_ends_for_its_own_reason_and_the_request_with_the_last() -> None:
    """The stop token is one that the second sequence writes and the others do not."""
    whole = expected_sequences(PROMPT, 8, 5, 3)
    stop = whole[1][3]
    assert [tokens.count(stop) for tokens in whole] == [0, 1, 0]
    engine = fake_engine()
    engine.add_request("a", PROMPT, hot(8, n=3, seed=5, stop_token_ids=[stop]), stream=True)
    outputs = []
    while engine.has_unfinished:
        outputs += engine.step()
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    assert [completion.finish_reason for completion in outputs[-1].outputs] == ["length", "stop", "length"]
    assert [completion.stop_reason for completion in outputs[-1].outputs] == [None, stop, None]
    assert sequences(outputs[-1]) == [whole[0], whole[1][:4], whole[2]]
    assert outputs[-1].metrics is not None
    assert all(output.metrics is not None and output.metrics.finished_time is None for output in outputs[:-1])


def scripted_engine(texts: Sequence[str]) -> Engine:
    """An engine whose request ``a`` writes these texts, a byte at a time."""
    tokenizer = byte_tokenizer()
    eos = tokenizer.token_id("</s>")
    scripts = {f"a/{index}": tokenizer.encode(text) for index, text in enumerate(texts)}
    runner = ScriptedRunner(scripts, vocab_size=tokenizer.vocab_size, eos_token_id=eos)
    config = EngineConfig(max_model_len=64, num_kv_pages=64, page_size=8, max_num_seqs=4, max_chunk_tokens=16)
    return Engine(runner, config, tokenizer=tokenizer, eos_token_ids=[eos])  # type: ignore[arg-type]


def test_each_streams_its_own_text() -> None:
    texts = ["short", "a longer one, with é and ☺", ""]
    engine = scripted_engine(texts)
    engine.add_request("a", "hi", hot(50, n=3), stream=True)
    deltas, last = [""] * 3, None
    while engine.has_unfinished:
        for last in engine.step():
            for completion in last.outputs:
                deltas[completion.index] += completion.delta
                assert deltas[completion.index] == completion.text
    assert last is not None
    assert last.finished
    assert deltas == texts


def test_a_stop_string_ends_the_one_that_writes_it() -> None:
    engine = scripted_engine(["one two three", "one, and a half"])
    engine.add_request("a", "hi", hot(50, n=2, stop=" two"))
    [first, second] = finish(engine)["a"].outputs
    assert (first.text, first.finish_reason, first.stop_reason) == ("one", "stop", " two")
    assert (second.text, second.finish_reason, second.stop_reason) == ("one, and a half", "stop", None)
    assert_idle(engine, 64)


@pytest.mark.parametrize("num_steps", [0, 1, 4, 7])
def test_an_abort_ends_all(num_steps: int) -> None:
    engine = fake_engine()
    engine.add_request("a", PROMPT, hot(20, n=6, seed=1))
    for _ in range(num_steps):
        engine.step()
    output = engine.abort("a")
    assert output is not None
    assert output.finished
    assert [completion.finish_reason for completion in output.outputs] == ["abort"] * 6
    for found, whole in zip(sequences(output), expected_sequences(PROMPT, 20, 1, 6), strict=True):
        assert found == whole[: len(found)]
    assert engine.abort("a") is None
    assert finish(engine) == {}
    assert_idle(engine)


def test_one_that_fails_leaves_the_others_alone() -> None:
    class Broken:
        text, tool_calls, ended = "", (), None

        def push(self, token_ids: list[int]) -> str:
            raise RuntimeError("no such token")

    engine = fake_engine()
    engine.add_request("a", PROMPT, hot(5, n=3, seed=1), stream=True)
    engine._tracked["a"].answers[1].detokenizer = Broken()  # type: ignore[assignment]
    output = finish(engine)["a"]
    assert [completion.finish_reason for completion in output.outputs] == ["length", "error", "length"]
    assert output.error is not None
    assert "no such token" in output.error
    whole = expected_sequences(PROMPT, 5, 1, 3)
    assert [sequences(output)[index] for index in (0, 2)] == [whole[0], whole[2]]
    assert_idle(engine)


def test_a_step_that_cannot_be_read_ends_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(max_num_seqs=2)
    engine.add_request("a", PROMPT, hot(5, n=3, seed=1))
    engine.step()
    with monkeypatch.context() as patch:
        patch.setattr(FakeStep, "read", lambda step: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.step()
    reasons = [completion.finish_reason for completion in finish(engine)["a"].outputs]
    assert reasons[0] == "abort"
    assert set(reasons) == {"abort", "length"}, "those that waited are served"
    assert_idle(engine)


@pytest.mark.parametrize("name", ["a/0", "a/2"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_request_may_be_called_what_logs_call_a_sequence(name: str, is_first: bool) -> None:
    engine = fake_engine()
    requests = {name: ([1], hot(3, seed=1)), "a": (PROMPT, hot(3, n=3, seed=1))}
    for each in requests if is_first else reversed(requests):
        engine.add_request(each, *requests[each])
    outputs = finish(engine)
    assert sequences(outputs[name]) == expected_sequences([1], 3, 1, 1)
    assert sequences(outputs["a"]) == expected_sequences(PROMPT, 3, 1, 3)
    assert_idle(engine)


@pytest.mark.parametrize("how", ["abort", "fail"])
def test_whatever_ends_a_request_leaves_one_alone_that_is_called_like_its_ended_sequence(how: str) -> None:
    """The first sequence stops at its second token, and the second goes on."""
    whole = expected_sequences(PROMPT, 20, 5, 2)
    engine = fake_engine()
    engine.add_request("a", PROMPT, hot(20, n=2, seed=5, stop_token_ids=[whole[0][1]]), stream=True)
    for _ in range(7):
        engine.step()
    answers = engine._tracked["a"].answers
    assert [answer.request.is_finished for answer in answers] == [True, False]
    engine.add_request("a/0", [1], hot(9, seed=1))
    engine.step()
    if how == "abort":
        engine.abort("a")
    else:
        engine._fail(answers[0], RuntimeError("its text cannot be read"))
    outputs = finish(engine)
    assert sequences(outputs["a/0"]) == expected_sequences([1], 9, 1, 1)
    assert_idle(engine)


def test_a_prompt_that_does_not_fit_is_refused_for_all() -> None:
    engine = fake_engine()
    with pytest.raises(ValueError, match="max_model_len"):
        engine.add_request("a", [1] * 65, hot(3, n=3))
    assert_idle(engine)


# ---- what several cost -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("prompt_logprobs", "num_made"), [(None, 1), (0, 2)])
def test_the_parameters_of_a_hundred_sequences_are_made_once_or_twice(
    prompt_logprobs: int | None, num_made: int
) -> None:
    engine = fake_engine()
    params = hot(2, n=100, logit_bias=dict.fromkeys(range(64), 1.0), prompt_logprobs=prompt_logprobs)
    engine.add_request("a", PROMPT, params)
    made = [answer.request.params for answer in engine._tracked["a"].answers]
    assert len(set(map(id, made))) == num_made
    assert [each.prompt_logprobs for each in made] == [prompt_logprobs, *[None] * 99]


@pytest.mark.parametrize("tool_format", [None, MISTRAL])
def test_the_prompt_is_read_once_for_the_text_of_all(
    tool_format: ToolCallFormat | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, read = scripted_engine(["é"] * 50), []
    text_stream = HuggingFaceTokenizer.text_stream
    monkeypatch.setattr(
        HuggingFaceTokenizer, "text_stream", lambda self, ids=(): read.append(ids) or text_stream(self, ids)
    )
    engine.add_request("a", byte_tokenizer().encode("é")[:1], hot(9, n=50), tool_format=tool_format)
    assert len(read) == 1
    assert {completion.text for completion in finish(engine)["a"].outputs} == {"é"}


def test_of_a_stream_only_what_is_new_is_made_anew() -> None:
    """Two of five sequences run at a time: of the others nothing is new."""
    engine = fake_engine(max_num_seqs=2)
    engine.add_request("a", PROMPT, hot(4, n=5, seed=1), stream=True)
    outputs = []
    while engine.has_unfinished:
        outputs += engine.step()
    num_new = [
        sum(new is not old for new, old in zip(after.outputs, before.outputs, strict=True))
        for before, after in pairwise(outputs)
    ]
    assert max(num_new) <= 4, "two that ended, and two in their place"
    assert sequences(outputs[-1]) == expected_sequences(PROMPT, 4, 1, 5)


# ---- the best of several ---------------------------------------------------------------------------------------------


def test_the_best_by_log_probability_per_token_come_first() -> None:
    """Against a brute force over prompts and seeds; sequences have different lengths, since many tokens end them."""
    rng = random.Random(3)
    engine = fake_engine(eos_token_ids=range(0, VOCAB_SIZE, 6))
    orders = set()
    for seed in range(30):
        prompt, best_of = [rng.randrange(VOCAB_SIZE) for _ in range(5)], rng.randint(2, 7)
        n = rng.randint(1, best_of - 1)
        output = run_alone(engine, prompt, hot(12, n=n, best_of=best_of, seed=seed))
        whole = []
        for tokens in expected_sequences(prompt, 12, seed, best_of):
            ends = [i for i, token in enumerate(tokens) if token % 6 == 0]
            whole.append(tokens[: ends[0] + 1] if ends else tokens)
        order = sorted(range(best_of), key=lambda i: -sum(map(logprob, whole[i])) / len(whole[i]))
        assert sequences(output) == [whole[i] for i in order[:n]]
        sums = [completion.cumulative_logprob for completion in output.outputs]
        assert sums == [sum(map(logprob, whole[i])) for i in order[:n]]
        assert all(completion.logprobs is None for completion in output.outputs)
        assert output.usage is not None
        assert output.usage.completion_tokens == sum(map(len, whole))
        orders.add(tuple(order))
    assert len(orders) > 10
    assert_idle(engine)


def test_as_many_as_are_asked_for_stay_in_their_order() -> None:
    engine = fake_engine()
    assert sequences(run_alone(engine, PROMPT, hot(4, n=5, best_of=5, seed=1))) == (expected_sequences(PROMPT, 4, 1, 5))


def test_of_equals_the_first_comes_first_and_without_tokens_too() -> None:
    greedy = SamplingParams(temperature=0, max_tokens=4, n=2, best_of=4)
    assert sequences(run_alone(fake_engine(), PROMPT, greedy)) == [expected_tokens(PROMPT, 4)] * 2
    assert sequences(run_alone(fake_engine(), PROMPT, hot(0, n=2, best_of=4))) == [[], []]


def test_a_sequence_that_failed_is_the_worst() -> None:
    engine = fake_engine()
    engine.add_request("a", PROMPT, hot(4, n=2, best_of=3, seed=1))
    answers, calls = engine._tracked["a"].answers, itertools.count()
    take_token = answers[0].take_token

    def failing(*arguments: Any) -> None:
        if next(calls) == 1:
            raise RuntimeError("no such token")
        take_token(*arguments)

    answers[0].take_token = failing  # type: ignore[method-assign]
    output = finish(engine)["a"]
    assert [completion.finish_reason for completion in output.outputs] == ["length", "length"]
    whole = expected_sequences(PROMPT, 4, 1, 3)
    assert sequences(output) == sorted(whole[1:], key=lambda tokens: -sum(map(logprob, tokens)))


def test_the_error_of_a_sequence_that_is_not_given_is_none_of_the_request() -> None:
    for n, has_error in ((2, False), (3, True)):
        engine = fake_engine()
        engine.add_request("a", PROMPT, hot(4, n=n, best_of=3, seed=1, logprobs=0))
        engine._tracked["a"].answers[0].take_token = lambda *arguments: 1 / 0  # type: ignore[method-assign, assignment]
        output = finish(engine)["a"]
        assert ("error" in [completion.finish_reason for completion in output.outputs]) == has_error
        assert (output.error is not None) == has_error


def test_the_best_cannot_be_streamed() -> None:
    engine = fake_engine()
    with pytest.raises(ValueError, match=r"best_of is 3 and n 2: .* cannot be streamed"):
        engine.add_request("a", PROMPT, hot(3, n=2, best_of=3), stream=True)
    assert_idle(engine)
    engine.add_request("a", PROMPT, hot(3, n=3, best_of=3), stream=True)
    assert len(finish(engine)["a"].outputs) == 3
