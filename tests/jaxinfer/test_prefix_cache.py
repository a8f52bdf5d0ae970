"""Shared prefixes with a real model: a request computes what was not computed before, and answers as if all had been.

What nobody wrote is NaN in the cache, so a page that is shared and should not be shows in the logits.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from jaxinfer.batch import Batch
from jaxinfer.engine import Engine
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.token_masks import TokenBits
from tests.engines import finish, greedy, record_greedy, run_alone
from tests.shared_runner import VOCAB_SIZE, SharedRunner, shared_runner

PAGE, WINDOW = 16, 24
NUM_TOKENS = 6
MODELS = {"full": ((None, None), "float32"), "window": ((WINDOW, WINDOW), "float32")}
MODELS |= {"two groups": ((None, WINDOW), "float32"), "int8": ((None, WINDOW), "int8")}


def random_ids(seed: int, length: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(VOCAB_SIZE) for _ in range(length)]


PREFIX = random_ids(0, 1000)
WHOLE_PAGES = 992
"""Tokens of the full pages of ``PREFIX``."""


@pytest.fixture(scope="module", params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def runner(name: str) -> SharedRunner:
    """Reads a prompt of 1,000 tokens, and one behind it, in a single step."""
    windows, kv_dtype = MODELS[name]
    limits = {"max_model_len": 1104, "max_num_seqs": 4, "max_chunk_tokens": 1088, "page_size": PAGE}
    return shared_runner(windows, kv_dtype=kv_dtype, num_kv_pages=4 * 69, **limits)


@dataclass(frozen=True)
class Answer:
    """Greedy ids, the logits [NUM_TOKENS, V] that they were drawn from, and how many tokens of the prompt were
    computed."""

    token_ids: list[int]
    logits: np.ndarray
    num_computed: int


def ask(engine: Engine, prompt: list[int]) -> Answer:
    """The answer to a lone prompt."""
    before = engine._runner.num_tokens["alone"]
    token_ids, logits = record_greedy(engine, prompt, NUM_TOKENS)
    num_computed = engine._runner.num_tokens["alone"] - before - (NUM_TOKENS - 1)
    return Answer(token_ids, logits, num_computed)


def assert_answers(answer: Answer, runner: SharedRunner, prompt: list[int]) -> None:
    """As an engine does that shares nothing."""
    expected = ask(runner.engine(prefix_cache=False), prompt)
    assert expected.num_computed == len(prompt)
    assert answer.token_ids == expected.token_ids
    np.testing.assert_allclose(answer.logits, expected.logits, atol=1e-4, rtol=0)


# ---- what is computed again ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_own", [1, 30])
@pytest.mark.parametrize("max_chunk_tokens", [64, 1088])
def test_a_second_prompt_computes_its_own_tokens_and_less_than_a_page(
    runner: SharedRunner, num_own: int, max_chunk_tokens: int
) -> None:
    engine = runner.engine(max_chunk_tokens=max_chunk_tokens)
    assert ask(engine, PREFIX + random_ids(1, 30)).num_computed == 1030
    prompt = PREFIX + random_ids(2, num_own)
    answer = ask(engine, prompt)
    assert answer.num_computed == len(prompt) - WHOLE_PAGES < num_own + PAGE
    assert_answers(answer, runner, prompt)


@pytest.mark.parametrize(("length", "num_computed"), [(1000, 8), (WHOLE_PAGES, PAGE), (WHOLE_PAGES + 1, 1), (500, 4)])
def test_a_prompt_that_is_wholly_cached_computes_its_last_tokens(
    runner: SharedRunner, length: int, num_computed: int
) -> None:
    """The next token is drawn from the logits of the last one, so there must be one to compute."""
    engine = runner.engine()
    ask(engine, PREFIX)
    answer = ask(engine, PREFIX[:length])
    assert answer.num_computed == num_computed
    assert_answers(answer, runner, PREFIX[:length])


def test_a_prompt_that_differs_early_shares_only_what_is_before(runner: SharedRunner) -> None:
    """All pages behind the other token have the same tokens, and other keys and values."""
    engine = runner.engine()
    ask(engine, PREFIX)
    prompt = [*PREFIX[:40], (PREFIX[40] + 1) % VOCAB_SIZE, *PREFIX[41:]]
    answer = ask(engine, prompt)
    assert answer.num_computed == 1000 - 2 * PAGE
    assert_answers(answer, runner, prompt)


def test_the_same_tokens_behind_others_are_no_prefix(runner: SharedRunner) -> None:
    """Its pages have the tokens of pages that are known."""
    engine = runner.engine()
    ask(engine, PREFIX)
    prompt = PREFIX[10 * PAGE : 500]
    answer = ask(engine, prompt)
    assert answer.num_computed == len(prompt)
    assert_answers(answer, runner, prompt)


LEFT_AFTER_EVICTION = {"full": 7 * PAGE, "window": 0, "two groups": 0, "int8": 0}
"""70 pages; of the first prompt 62 are known and one is not full. The second takes 63: the 8 blank ones and the last 55
of the known. What is left of the beginning is of no use where the pages of a window are gone."""


def test_after_eviction_what_is_gone_is_computed(runner: SharedRunner, name: str) -> None:
    engine = runner.engine(max_chunk_tokens=64, num_kv_pages=7 if name == "window" else 70)
    first, second = PREFIX, random_ids(1, 1000)
    for prompt, num_computed in ((first, 1000), (second, 1000), (first, 1000 - LEFT_AFTER_EVICTION[name]), (first, 8)):
        answer = ask(engine, prompt)
        assert answer.num_computed == num_computed
        assert_answers(answer, runner, prompt)


def test_two_that_arrive_in_the_same_step(runner: SharedRunner) -> None:
    """The second reads pages that the first writes in that very step."""
    prompts = {"first": PREFIX, "second": PREFIX + random_ids(2, 20), "equal": PREFIX}
    engine = runner.engine()
    for name, prompt in prompts.items():
        engine.add_request(name, prompt, greedy(NUM_TOKENS))
    outputs = finish(engine)
    assert engine._runner.batches[0] == list(prompts)
    expected = {"first": 1000, "second": 28, "equal": 8}
    assert engine._runner.num_tokens == {name: n + NUM_TOKENS - 1 for name, n in expected.items()}
    for name, prompt in prompts.items():
        assert outputs[name].outputs[0].token_ids == ask(runner.engine(prefix_cache=False), prompt).token_ids


# ---- whose prefix it is ----------------------------------------------------------------------------------------------

SHORT = random_ids(3, 100)


def num_computed_for(engine: Engine, prompt: list[int], **asked: str) -> int:
    """Of a lone prompt that draws a single token."""
    before = engine._runner.num_tokens["asked"]
    engine.add_request("asked", prompt, greedy(1), **asked)
    finish(engine)
    return engine._runner.num_tokens["asked"] - before


def test_a_salt_keeps_prefixes_apart(runner: SharedRunner) -> None:
    engine = runner.engine()
    for salt in ({}, {"cache_salt": "a"}, {"cache_salt": "b"}, {"cache_salt": ""}):
        assert num_computed_for(engine, SHORT, **salt) == 100, salt
        assert num_computed_for(engine, SHORT, **salt) == 4, salt


def test_an_engine_told_to_shares_nothing(runner: SharedRunner) -> None:
    engine = runner.engine(prefix_cache=False)
    assert [num_computed_for(engine, SHORT) for _ in range(2)] == [100, 100]
    assert run_alone(engine, SHORT, greedy(1)).usage.cached_tokens == 0


def test_usage_counts_the_tokens_that_the_cache_had(runner: SharedRunner) -> None:
    engine = runner.engine()
    usages = [run_alone(engine, prompt, greedy(5)).usage for prompt in (SHORT, SHORT, [*SHORT, 1, 2], SHORT[:90])]
    found = [(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) for usage in usages]
    assert found == [(100, 5, 0), (100, 5, 96), (102, 5, 96), (90, 5, 80)]
    counters = engine.scheduler.counters
    assert (counters.num_prompt_tokens, counters.num_cached_tokens) == (392, 272)


def test_the_prefix_of_a_request_that_still_decodes(runner: SharedRunner) -> None:
    """The tokens that it has drawn so far too, as far as the host has read them and they fill pages."""
    expected = run_alone(runner.engine(prefix_cache=False), SHORT, greedy(60)).outputs[0].token_ids
    engine = runner.engine()
    engine.add_request("decodes", SHORT, greedy(60))
    while len(engine._tracked["decodes"].answers[0].request.output_token_ids) < 30:
        engine.step()
    engine.add_request("joins", SHORT + expected[:30], greedy(20))
    outputs = finish(engine)
    assert outputs["joins"].usage.cached_tokens == 8 * PAGE
    assert outputs["joins"].outputs[0].token_ids == expected[30:50]
    assert outputs["decodes"].outputs[0].token_ids == expected


@pytest.mark.parametrize("num_drawn", [28, 29])
def test_the_next_turn_of_a_chat_finds_prompt_and_answer(runner: SharedRunner, num_drawn: int) -> None:
    """The last token of an answer was fed to no step, so it fills no page: 100 + 28 tokens are eight pages but one."""
    engine = runner.engine()
    answer = run_alone(engine, SHORT, greedy(num_drawn)).outputs[0].token_ids
    turn = SHORT + answer + random_ids(4, 20)
    reply = ask(engine, turn)
    assert reply.num_computed == len(turn) - (7 if num_drawn == 28 else 8) * PAGE
    assert_answers(reply, runner, turn)


def test_draws_of_a_seed_are_the_same(runner: SharedRunner) -> None:
    params = SamplingParams(temperature=1, seed=5, max_tokens=20)
    engine = runner.engine()
    outputs = [run_alone(engine, SHORT, params) for _ in range(2)]
    expected = run_alone(runner.engine(prefix_cache=False), SHORT, params).outputs[0].token_ids
    assert [output.usage.cached_tokens for output in outputs] == [0, 96]
    assert [output.outputs[0].token_ids for output in outputs] == [expected, expected]


def test_the_prefix_of_a_request_that_is_preempted(runner: SharedRunner, name: str) -> None:
    """Two run in a pool for little more than one. What the later one had computed is found again as far as it is left,
    by itself and by a third with the same prompt. Where all layers have a window there is room for both."""
    prompts = {"earlier": random_ids(5, 50), "later": random_ids(6, 40), "third": random_ids(6, 40)}
    large = runner.engine(prefix_cache=False)
    expected = {name: run_alone(large, prompt, greedy(60)).outputs[0].token_ids for name, prompt in prompts.items()}
    engine = runner.engine(max_model_len=112, max_chunk_tokens=64, num_kv_pages=12)
    for request, prompt in prompts.items():
        engine.add_request(request, prompt, greedy(60))
    outputs = finish(engine)
    assert {name: output.outputs[0].token_ids for name, output in outputs.items()} == expected
    if name == "window":
        assert outputs["later"].metrics.num_preemptions == 0
    else:
        assert outputs["later"].metrics.num_preemptions > 0
        assert outputs["third"].usage.cached_tokens == 2 * PAGE
    counters, num_positions = engine.scheduler.counters, 50 + 40 + 40 + 3 * 59
    num_computed = num_positions - counters.num_cached_tokens + counters.num_recomputed_tokens
    assert engine._runner.num_tokens.total() == num_computed


# ---- steps that fail -------------------------------------------------------------------------------------------------


class FailedStep:
    """A step that the device did not do."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def read(self) -> list[int]:
        raise RuntimeError("the device failed")


def fail_once(engine: Engine, where: str) -> None:
    """Let the next step fail and do nothing."""
    runner = engine._runner
    forward, sample = runner.forward, runner.sample

    def failing(batch: Batch) -> FailedStep:
        runner.forward = forward
        if where == "forward":
            raise RuntimeError("the device failed")
        runner.sample = passing
        return FailedStep(batch)

    def passing(step: FailedStep, forbidden: Sequence[TokenBits | None] = ()) -> FailedStep:
        runner.sample = sample
        return step

    runner.forward = failing


@pytest.mark.parametrize("where", ["forward", "read"])
@pytest.mark.parametrize("num_steps", [0, 1, 20])
def test_pages_of_a_step_that_failed_are_not_shared(runner: SharedRunner, where: str, num_steps: int) -> None:
    """Neither those of a prompt, in its first piece or its second, nor those of an answer."""
    engine = runner.engine(max_chunk_tokens=64)
    engine.add_request("fails", SHORT, greedy(60))
    for _ in range(num_steps):
        engine.step()
    fail_once(engine, where)
    with pytest.raises(RuntimeError, match="the device failed"):
        finish(engine)
    failed = finish(engine)["fails"].outputs[0]
    assert failed.finish_reason == "abort"
    prompt = SHORT + failed.token_ids + random_ids(7, 40)
    answer = ask(engine, prompt)
    assert answer.num_computed == len(prompt)
    assert_answers(answer, runner, prompt)
    assert engine.scheduler.num_free_pages == engine._config.group_pages


def test_who_shares_pages_of_a_step_that_failed_ends_with_it(runner: SharedRunner) -> None:
    """The step behind it was launched before the failure was seen, and reads what was not written."""
    engine = runner.engine()
    engine.add_request("fails", SHORT, greedy(5))
    fail_once(engine, "read")
    engine.step()
    engine.add_request("joins", SHORT, greedy(5))
    with pytest.raises(RuntimeError, match="the device failed"):
        engine.step()
    assert engine._runner.batches[-1] == ["fails", "joins"]
    engine.add_request("comes", SHORT, greedy(NUM_TOKENS))
    outputs = finish(engine)
    reasons = {name: output.outputs[0].finish_reason for name, output in outputs.items()}
    assert reasons == {"fails": "abort", "joins": "abort", "comes": "length"}
    assert outputs["comes"].usage.cached_tokens == 0
    expected = run_alone(runner.engine(prefix_cache=False), SHORT, greedy(NUM_TOKENS))
    assert outputs["comes"].outputs[0].token_ids == expected.outputs[0].token_ids
