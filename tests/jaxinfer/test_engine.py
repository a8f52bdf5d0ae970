"""The loop over a model whose tokens can be computed by hand: what is asked is what is answered, whatever else runs."""

import contextlib
import gc
import itertools
import random
import signal
import weakref
from typing import Any

import numpy as np
import pytest

from jaxinfer.batch import Batch
from jaxinfer.engine import Engine
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.structured_outputs.params import StructuredOutputsParams
from tests.engines import finish, greedy, run_alone
from tests.fake_runner import VOCAB_SIZE, FakeStep, expected_tokens
from tests.fakes import fake_engine


def assert_idle(engine: Engine, num_pages: int = 32) -> None:
    """Nothing runs, waits or holds a page."""
    assert not engine.has_unfinished
    assert engine.scheduler.num_free_pages == (num_pages,)


def test_a_request_gets_its_tokens() -> None:
    engine = fake_engine()
    output = run_alone(engine, [3, 5], greedy(6))
    assert output.outputs[0].token_ids == expected_tokens([3, 5], 6)
    assert output.outputs[0].finish_reason == "length"
    assert output.finished
    assert output.metrics is not None
    assert output.metrics.num_generated_tokens == 6
    assert_idle(engine)


def test_the_next_step_is_launched_before_the_last_one_is_read() -> None:
    engine = fake_engine()
    engine.add_request("a", [1], greedy(3))
    assert engine.step() == []
    assert len(engine._runner.batches) == 1
    engine.step()
    assert len(engine._runner.batches) == 2
    assert engine._tracked["a"].answers[0].request.output_token_ids == expected_tokens([1], 1)


def test_requests_arriving_at_any_time_get_what_each_gets_alone() -> None:
    rng = random.Random(0)
    engine = fake_engine()
    wanted = {}
    outputs = {}
    for i in range(64):
        prompt = [rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(1, 40))]
        num_tokens = rng.randint(0, 64 - len(prompt))
        wanted[str(i)] = expected_tokens(prompt, num_tokens)
        engine.add_request(str(i), prompt, greedy(num_tokens))
        for _ in range(rng.randint(0, 3)):
            outputs |= {output.request_id: output for output in engine.step()}
    outputs |= finish(engine)
    assert {name: output.outputs[0].token_ids for name, output in outputs.items()} == wanted
    assert_idle(engine)


def test_eos_ends_a_request_and_the_surplus_token_is_dropped() -> None:
    tokens = expected_tokens([2, 4, 6], 10)
    engine = fake_engine(eos_token_ids=[tokens[4]])
    output = run_alone(engine, [2, 4, 6], greedy(10)).outputs[0]
    assert (output.token_ids, output.finish_reason) == (tokens[: tokens.index(tokens[4]) + 1], "stop")
    assert_idle(engine)


def test_ignore_eos_goes_on_and_a_stop_token_still_stops() -> None:
    tokens = expected_tokens([2, 4, 6], 10)
    assert len(set(tokens)) == 10, "the example needs different tokens"
    engine = fake_engine(eos_token_ids=[tokens[2]])
    assert run_alone(engine, [2, 4, 6], greedy(10, ignore_eos=True)).outputs[0].token_ids == tokens
    output = run_alone(engine, [2, 4, 6], greedy(10, ignore_eos=True, stop_token_ids=[tokens[5]])).outputs[0]
    assert (output.token_ids, output.finish_reason) == (tokens[:6], "stop")


def test_who_ends_where_and_why_by_the_definition() -> None:
    """Any EOS and stop tokens. Before ``min_tokens`` none of them is drawn, but an EOS that is ignored is no end."""
    rng, seen = random.Random(0), set()
    for _ in range(50):
        prompt, max_tokens = [rng.randrange(VOCAB_SIZE) for _ in range(3)], rng.randint(1, 6)
        eos, asked = (set(rng.sample(range(VOCAB_SIZE), rng.choice([0, 200]))) for _ in range(2))
        ignore_eos, min_tokens = rng.random() < 0.5, rng.choice([0, max_tokens - 1, max_tokens])
        ends = asked if ignore_eos else asked | eos
        engine = fake_engine(eos_token_ids=sorted(eos))
        params = greedy(max_tokens, min_tokens=min_tokens, ignore_eos=ignore_eos, stop_token_ids=asked)
        output = run_alone(engine, prompt, params).outputs[0]

        early = [ends] * min_tokens + [set()] * (max_tokens - min_tokens)
        tokens = expected_tokens(prompt, max_tokens, forbidden=lambda written: early[len(written)])  # noqa: B023
        length = next((i + 1 for i, token in enumerate(tokens) if token in ends), max_tokens)
        last = tokens[length - 1]
        assert output.token_ids == tokens[:length]
        assert output.finish_reason == ("stop" if last in ends else "length")
        assert output.stop_reason == (last if last in asked else None)
        seen.add((output.finish_reason, output.stop_reason is None, ignore_eos, length == max_tokens))
    assert len(seen) == 8, "each end comes, in the middle and at the last token"


def test_max_tokens_0_processes_the_prompt_and_generates_nothing() -> None:
    engine = fake_engine()
    output = run_alone(engine, list(range(1, 40)), greedy(0))
    assert (output.outputs[0].token_ids, output.outputs[0].finish_reason) == ([], "length")
    assert sum(batch.num_chunk_tokens for batch in engine._runner.batches) >= 39
    assert_idle(engine)


def test_a_prompt_of_exactly_the_maximal_length_ends_by_length() -> None:
    engine = fake_engine()
    output = run_alone(engine, [1] * 64, greedy(5)).outputs[0]
    assert (output.token_ids, output.finish_reason) == ([], "length")
    output = run_alone(engine, [1] * 63, greedy(5)).outputs[0]
    assert (output.token_ids, output.finish_reason) == (expected_tokens([1] * 63, 1), "length")


def test_max_tokens_none_goes_on_to_the_models_length() -> None:
    engine = fake_engine()
    output = run_alone(engine, [7], SamplingParams(temperature=0, max_tokens=None)).outputs[0]
    assert output.token_ids == expected_tokens([7], 63)


def test_streaming_gives_every_token_once() -> None:
    engine = fake_engine()
    engine.add_request("a", [9], greedy(5), stream=True)
    seen = []
    while engine.has_unfinished:
        seen += [(output.outputs[0].token_ids, output.finished) for output in engine.step()]
    tokens = expected_tokens([9], 5)
    assert seen == [(tokens[: i + 1], i == 4) for i in range(5)]


@pytest.mark.parametrize("num_steps", range(6))
def test_an_abort_at_any_step_frees_all_and_harms_nobody(num_steps: int) -> None:
    engine = fake_engine()
    engine.add_request("stays", [1, 2], greedy(12))
    engine.add_request("leaves", [5] * 20, greedy(30))
    for _ in range(num_steps):
        engine.step()
    output = engine.abort("leaves")
    assert output is not None
    assert output.outputs[0].finish_reason == "abort"
    generated = output.outputs[0].token_ids
    assert generated == expected_tokens([5] * 20, len(generated))
    assert engine.abort("leaves") is None
    engine.add_request("comes", [8] * 9, greedy(12))  # takes over the slot and the pages while a step is in flight
    outputs = finish(engine)
    assert outputs["stays"].outputs[0].token_ids == expected_tokens([1, 2], 12)
    assert outputs["comes"].outputs[0].token_ids == expected_tokens([8] * 9, 12)
    assert_idle(engine)


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ([], greedy(1), "empty prompt"),
        ([1] * 65, greedy(1), "the prompt has 65 tokens and max_model_len is 64"),
        ([1, VOCAB_SIZE], greedy(1), rf"{VOCAB_SIZE}; a token id is a whole number in \[0, {VOCAB_SIZE}\)"),
        ([-1], greedy(1), r"-1; a token id"),
        ([1.5], greedy(1), r"1\.5; a token id"),
        ([True], greedy(1), r"True; a token id"),
        ([1], greedy(1, stop_token_ids=[VOCAB_SIZE]), f"stop_token_ids has {VOCAB_SIZE}"),
        ("text", greedy(1), "no tokenizer"),
        ([1], {"max_tokens": 1}, "must be a SamplingParams"),
        (None, greedy(1), "prompt is None; it must be a list of token ids"),
        (b"\x01\x02", greedy(1), "it must be a list of token ids"),
        ({5, 1}, greedy(1), "it must be a list of token ids"),
        ({5: 1}, greedy(1), "it must be a list of token ids"),
        (np.array(5), greedy(1), "it must be a list of token ids"),
        ([10**5000], greedy(1), "prompt has a int that cannot be written; a token id"),
        ([1], greedy(1, allowed_token_ids=[1, 10**30]), "allowed_token_ids has 1000000"),
        ([1], greedy(1, logit_bias={1: 1, VOCAB_SIZE: 1}), f"logit_bias has {VOCAB_SIZE}"),
        ([1], greedy(1, stop="x"), "stop is text and the model has no tokenizer"),
        ([1], greedy(1, bad_words=["x"]), "bad_words is text and the model has no tokenizer"),
        ([1], greedy(5, min_tokens=1, stop_token_ids=[3], allowed_token_ids=[3]), "every token of the vocabulary"),
        ([1], greedy(5, min_tokens=1, stop_token_ids=range(VOCAB_SIZE)), "every token of the vocabulary is forbidden"),
    ],
)
def test_a_bad_request_is_refused_and_the_others_go_on(prompt: object, params: object, message: str) -> None:
    engine = fake_engine()
    engine.add_request("good", [1, 2], greedy(8))
    engine.step()
    with pytest.raises(ValueError, match=message):
        engine.add_request("bad", prompt, params)  # type: ignore[arg-type]
    outputs = finish(engine)
    assert list(outputs) == ["good"]
    assert outputs["good"].outputs[0].token_ids == expected_tokens([1, 2], 8)
    assert_idle(engine)


def test_a_prompt_that_the_cache_can_never_hold_is_refused_with_the_numbers() -> None:
    engine = fake_engine(num_kv_pages=3)
    with pytest.raises(ValueError, match=r"the prompt has 13 tokens .* 4 KV pages of 4 tokens, and the pool has 3"):
        engine.add_request("a", [1] * 13, greedy(1))
    assert run_alone(engine, [1] * 12, greedy(1)).outputs[0].token_ids == expected_tokens([1] * 12, 1)


def test_an_id_in_use_is_refused_and_can_be_used_again_afterwards() -> None:
    engine = fake_engine()
    engine.add_request("a", [1], greedy(2))
    with pytest.raises(ValueError, match="'a' is in use"):
        engine.add_request("a", [2], greedy(2))
    assert finish(engine)["a"].outputs[0].token_ids == expected_tokens([1], 2)
    engine.add_request("a", [2], greedy(2))
    assert finish(engine)["a"].outputs[0].token_ids == expected_tokens([2], 2)


def test_an_interrupted_wait_for_the_device_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine()
    engine.add_request("a", [1, 2], greedy(10))
    read, calls = FakeStep.read, itertools.count()

    def interrupted_twice(step: FakeStep) -> list[int]:
        if next(calls) in (2, 3):
            raise KeyboardInterrupt
        return read(step)

    monkeypatch.setattr(FakeStep, "read", interrupted_twice)
    outputs = {}
    while engine.has_unfinished:
        with contextlib.suppress(KeyboardInterrupt):
            outputs |= {output.request_id: output for output in engine.step()}
    assert outputs["a"].outputs[0].token_ids == expected_tokens([1, 2], 10)
    assert_idle(engine)


def test_an_output_that_was_interrupted_is_still_due(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine()
    engine.add_request("a", [1, 2], greedy(1))
    engine.step()
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_output", lambda tracked: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            engine.step()
    assert engine.has_unfinished
    assert finish(engine)["a"].outputs[0].token_ids == expected_tokens([1, 2], 1)


def test_an_output_that_was_interrupted_is_not_due_after_an_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine()
    engine.add_request("a", [1, 2], greedy(5), stream=True)
    engine.step()
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_output", lambda tracked: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            engine.step()
    aborted = engine.abort("a")
    assert aborted is not None
    assert aborted.outputs[0].token_ids == expected_tokens([1, 2], 1)
    assert finish(engine) == {}
    assert_idle(engine)


def test_ctrl_c_in_the_middle_of_a_launch_takes_effect_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real SIGINT after the device was given the step and before the host has noted it."""
    engine = fake_engine()
    engine.add_request("a", [1, 2], greedy(6))
    forward = engine._runner.forward

    def interrupted(batch: Batch) -> FakeStep:
        step = forward(batch)
        signal.raise_signal(signal.SIGINT)
        return step

    with monkeypatch.context() as patch:
        patch.setattr(engine._runner, "forward", interrupted)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                engine.step()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert finish(engine)["a"].outputs[0].token_ids == expected_tokens([1, 2], 6)
    assert_idle(engine)


def test_what_a_timer_raises_in_the_middle_of_a_launch_takes_effect_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C: between the call that takes the cache and the note of the one it gives back nothing may be raised."""

    def ring(number: int, frame: object) -> None:
        rung.append(len(launched))
        raise TimeoutError

    engine, launched, rung = fake_engine(), [], []
    engine.add_request("a", [1, 2], greedy(6))
    forward = engine._runner.forward

    def interrupted(batch: Batch) -> FakeStep:
        step = forward(batch)
        for number in (signal.SIGALRM, signal.SIGALRM, signal.SIGINT):
            signal.raise_signal(number)
        launched.append(step)
        return step

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(engine._runner, "forward", interrupted)
            with pytest.raises(KeyboardInterrupt):
                engine.step()
        assert signal.getsignal(signal.SIGALRM) is ring
    finally:
        signal.signal(signal.SIGALRM, before)
    assert (len(launched), rung) == (1, [1])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert finish(engine)["a"].outputs[0].token_ids == expected_tokens([1, 2], 6)


def test_an_engine_that_can_do_nothing_for_its_requests_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine()
    engine.add_request("a", [1, 2], greedy(6))
    monkeypatch.setattr(engine.scheduler, "schedule", lambda: None)
    with pytest.raises(RuntimeError, match="none of them can be scheduled"):
        engine.step()


def test_a_step_that_cannot_be_launched_ends_its_requests_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(max_num_seqs=1)
    engine.add_request("hit", [1, 2], greedy(5))
    engine.add_request("waits", [3], greedy(5))
    engine.step()
    with monkeypatch.context() as patch:
        patch.setattr(engine._runner, "forward", lambda batch: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.step()
    outputs = finish(engine)
    assert outputs["hit"].outputs[0].finish_reason == "abort"
    assert outputs["waits"].outputs[0].token_ids == expected_tokens([3], 5)
    assert_idle(engine)


def test_a_step_that_cannot_be_read_ends_its_requests_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(max_num_seqs=1)
    engine.add_request("hit", [1, 2], greedy(5))
    engine.add_request("waits", [3], greedy(5))
    engine.step()
    with monkeypatch.context() as patch:
        patch.setattr(FakeStep, "read", lambda step: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.step()
    outputs = finish(engine)
    assert outputs["hit"].outputs[0].finish_reason == "abort"
    assert outputs["waits"].outputs[0].token_ids == expected_tokens([3], 5)
    assert_idle(engine)


def test_text_that_cannot_be_made_ends_its_request_only() -> None:
    class Broken:
        text, tool_calls, ended = "", (), None

        def push(self, token_ids: list[int]) -> str:
            raise RuntimeError("no such token")

    engine = fake_engine()
    engine.add_request("bad", [1, 2], greedy(5), stream=True)
    engine.add_request("good", [3], greedy(5))
    engine._tracked["bad"].answers[0].detokenizer = Broken()
    outputs = finish(engine)
    assert outputs["bad"].outputs[0].finish_reason == "error"
    assert "no such token" in outputs["bad"].error
    assert outputs["good"].outputs[0].token_ids == expected_tokens([3], 5)
    assert_idle(engine)


def test_end_tokens_beyond_the_vocabulary_are_no_fault() -> None:
    engine = fake_engine(eos_token_ids=[VOCAB_SIZE + 100])
    assert run_alone(engine, [3], greedy(4, min_tokens=2)).outputs[0].token_ids == expected_tokens([3], 4)


@pytest.mark.parametrize(
    ("prompt", "params"),
    [
        ([VOCAB_SIZE], {}),
        ([1] * 65, {}),
        ([1] * 40, {}),
        ([1], {"allowed_token_ids": [5], "stop_token_ids": [5], "min_tokens": 1}),
        ([1], {"structured_outputs": StructuredOutputsParams(regex="a")}),
        ([1], {"stop": "a"}),
        ([1], {"stop_token_ids": [VOCAB_SIZE], "n": 3}),
    ],
)
def test_a_refused_request_changes_no_seed(prompt: list[int], params: dict[str, Any]) -> None:
    """One that never ran must not change what the next one draws."""

    def seeds(*, with_refused: bool) -> list[int]:
        engine = fake_engine(num_kv_pages=9)
        for name in "ab":
            engine.add_request(name, [1], SamplingParams(max_tokens=2, n=2))
            if with_refused:
                with pytest.raises(ValueError, match=r"prompt|token|vocabulary"):
                    engine.add_request("refused", prompt, SamplingParams(max_tokens=9, **params))
        return [answer.request.seed for tracked in engine._tracked.values() for answer in tracked.answers]

    assert seeds(with_refused=True) == seeds(with_refused=False)


def test_long_names_are_shown_in_part() -> None:
    engine, name = fake_engine(), "a" * 10**6
    engine.add_request(name, [1], greedy(2))
    for prompt in ([1], []):
        with pytest.raises(ValueError, match=r"'aaa.*\.\.\..*aaa' (is in use|has an empty prompt)") as refused:
            engine.add_request(name + "a" * (not prompt), prompt, greedy(2))
        assert len(str(refused.value)) < 200
    assert list(finish(engine)) == [name]


def test_nothing_of_requests_that_ended_is_kept() -> None:
    """However they ended, and whatever they asked for."""
    engine, kept = fake_engine(num_kv_pages=24), []
    for i in range(60):
        params = greedy(1 + i % 7, n=1 + i % 3, stop_token_ids=range(i), logprobs=1 if i % 2 else None)
        engine.add_request(str(i), [i] * (1 + i % 9), params, stream=i % 4 == 0)
        tracked = engine._tracked[str(i)]
        kept += [weakref.ref(tracked), *(weakref.ref(answer.request) for answer in tracked.answers)]
        del tracked
        engine.step()
        if i % 5 == 0:
            engine.abort(str(i))
        with contextlib.suppress(ValueError):
            engine.add_request("refused", [VOCAB_SIZE], params)
    finish(engine)
    run_alone(engine, [1], greedy(2))  # takes the place of the last step
    engine._runner.batches.clear()  # which remembers what it was given
    gc.collect()
    assert [reference() for reference in kept if reference() is not None] == []
    for holder in (engine._tracked, engine._owners, engine._attended, engine._changed, engine._outputs):
        assert not holder


def test_the_caller_may_change_its_prompt_after_the_call() -> None:
    engine, prompt = fake_engine(), [4, 4, 4]
    engine.add_request("a", prompt, greedy(2))
    prompt[:] = [1]
    assert finish(engine)["a"].outputs[0].token_ids == expected_tokens([4, 4, 4], 2)
