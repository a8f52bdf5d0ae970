"""A pool too small for the load, with a real model: slower, and in nothing else different from a large one."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil, log

import pytest

from jaxinfer.engine import Engine
from jaxinfer.outputs import RequestOutput
from jaxinfer.sampling_params import SamplingParams
from tests.shared_runner import VOCAB_SIZE, SharedRunner, shared_runner

PAGE, LONGEST, NUM_SEQS = 8, 96, 8
WINDOW = 36
MODELS = {"full": ((None, None), "float32", 16), "window": ((WINDOW, WINDOW), "float32", 10)}
MODELS |= {"two groups": ((None, WINDOW), "float32", 16), "int8": ((None, WINDOW), "int8", 16)}
"""Windows, dtype of the cache, and pages of the small pool; the longest request takes 12, and 8 of a window."""

MOST_PREEMPTIONS = ceil(log(LONGEST / PAGE, 4))
MANY_STEPS = 5000


class NumberTokenizer:
    """Each token is its number and a space, so that text shows which tokens it was made of."""

    def text_stream(self, context: Sequence[int] = ()) -> "NumberTokenizer":
        return self

    def push(self, token_id: int) -> str:
        return f"{token_id} "

    def pending(self) -> str:
        return ""

    def settle(self) -> str:
        return ""


@dataclass(frozen=True)
class Load:
    """A prompt and how it is to be answered."""

    prompt: list[int]
    params: SamplingParams


@pytest.fixture(scope="module")
def loads() -> dict[str, Load]:
    """Short prompts, many with one beginning, and long answers: each takes far more pages than at its start.

    The last ten are the longest: of these some would be preempted too often, were they admitted as soon as they fit.
    """
    rng = random.Random(0)
    stems = [[rng.randrange(VOCAB_SIZE) for _ in range(20)] for _ in range(3)]
    found = {}
    for i in range(40):
        is_long = i >= 30
        stem = [] if is_long else rng.choice(stems)[: rng.choice([2, 4, 8, 20])]
        num_tokens = 80 if is_long else rng.choice([0, 1, 20, 40, 60])
        prompt = stem + [rng.randrange(VOCAB_SIZE) for _ in range(4)]
        params = SamplingParams(
            temperature=rng.choice([0, 0, 0.7]),
            seed=i,
            max_tokens=num_tokens,
            min_tokens=rng.choice([0, num_tokens // 2]),
            stop_token_ids=() if is_long else rng.choice([(), range(12)]),
        )
        found[str(i)] = Load(prompt, params)
    return found


@pytest.fixture(scope="module", params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def runner(name: str) -> SharedRunner:
    windows, kv_dtype, _ = MODELS[name]
    limits = {"max_model_len": LONGEST, "max_num_seqs": NUM_SEQS, "max_chunk_tokens": 16, "page_size": PAGE}
    return shared_runner(windows, kv_dtype=kv_dtype, num_kv_pages=NUM_SEQS * 12, **limits)


@pytest.fixture(scope="module")
def expected(runner: SharedRunner, loads: dict[str, Load]) -> dict[str, RequestOutput]:
    """What a pool gives that has room for all, without shared prefixes."""
    engine = runner.engine(tokenizer=NumberTokenizer(), prefix_cache=False)
    outputs, _ = serve(engine, loads)
    assert engine.scheduler.counters.num_preemptions == 0
    reasons = [output.outputs[0].finish_reason for output in outputs.values()]
    assert min(reasons.count("stop"), reasons.count("length")) > 5, "the load needs both"
    return outputs


def serve(engine: Engine, loads: dict[str, Load]) -> tuple[dict[str, RequestOutput], dict[str, str]]:
    """The last outputs, and the joined deltas, of requests that arrive two in a step."""
    arriving, outputs, deltas = iter(loads.items()), {}, dict.fromkeys(loads, "")
    for _ in range(MANY_STEPS):
        for request, load in islice(arriving, 2):
            engine.add_request(request, load.prompt, load.params, stream=True)
        for output in engine.step():
            deltas[output.request_id] += output.outputs[0].delta
            outputs[output.request_id] = output
        if not engine.has_unfinished:
            return outputs, deltas
    raise AssertionError(f"{engine.scheduler.num_running} requests run for ever, {engine.scheduler.num_waiting} wait")


def small_engine(runner: SharedRunner, name: str, **changes: bool) -> Engine:
    return runner.engine(tokenizer=NumberTokenizer(), num_kv_pages=MODELS[name][2], **changes)


def as_answer(output: RequestOutput) -> tuple[list[int], str, str | None]:
    completion = output.outputs[0]
    return completion.token_ids, completion.text, completion.finish_reason


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_every_answer_is_that_of_a_large_pool(
    runner: SharedRunner, name: str, loads: dict[str, Load], expected: dict[str, RequestOutput], prefix_cache: bool
) -> None:
    engine = small_engine(runner, name, prefix_cache=prefix_cache)
    outputs, deltas = serve(engine, loads)
    assert outputs.keys() == loads.keys()
    for request, output in outputs.items():
        assert as_answer(output) == as_answer(expected[request]), request
        assert deltas[request] == output.outputs[0].text
        shown = output.outputs[0].token_ids[: -1 if output.outputs[0].finish_reason == "stop" else None]
        assert deltas[request] == "".join(f"{token_id} " for token_id in shown)
        assert output.usage.completion_tokens == len(output.outputs[0].token_ids)
    assert engine.scheduler.num_free_pages == engine._config.group_pages
    counters, preemptions = engine.scheduler.counters, [output.metrics.num_preemptions for output in outputs.values()]
    assert max(preemptions) <= MOST_PREEMPTIONS
    assert sum(preemptions) == counters.num_preemptions == counters.num_resumptions
    assert counters.num_preemptions > 4, "the pool is too large to show anything"
    assert counters.num_recomputed_tokens > 0
    assert (counters.num_cached_tokens > 0) == prefix_cache


def test_chunks_of_another_size_give_the_same(
    runner: SharedRunner, loads: dict[str, Load], expected: dict[str, RequestOutput]
) -> None:
    """No prompt is cut as it was, so its tokens attend to pages for what they had in hand, which int8 would show."""
    engine = runner.engine(tokenizer=NumberTokenizer(), max_chunk_tokens=5, block_q=5)
    outputs, _ = serve(engine, loads)
    assert {request: as_answer(output) for request, output in outputs.items()} == {
        request: as_answer(output) for request, output in expected.items()
    }


def test_the_smallest_pool_serves_the_longest_requests(runner: SharedRunner) -> None:
    """With a window they have more tokens than it holds, and their prompts are read in pieces as small as it takes."""
    rng = random.Random(1)
    lengths = {"0": 70, "1": LONGEST - 1, "2": 5}
    loads = {
        request: Load(
            [rng.randrange(VOCAB_SIZE) for _ in range(length)],
            SamplingParams(temperature=0, max_tokens=LONGEST - length),
        )
        for request, length in lengths.items()
    }
    [num_pages, *_] = runner.config.least_pages(LONGEST)
    engine = runner.engine(tokenizer=NumberTokenizer(), num_kv_pages=num_pages)
    answers = [
        {request: as_answer(output) for request, output in serve(served, loads)[0].items()}
        for served in (engine, runner.engine(tokenizer=NumberTokenizer(), prefix_cache=False))
    ]
    assert answers[0] == answers[1]
    assert engine.scheduler.num_free_pages == engine._config.group_pages


def test_preempted_requests_that_are_aborted_take_nothing_with_them(
    runner: SharedRunner, name: str, loads: dict[str, Load], expected: dict[str, RequestOutput]
) -> None:
    """Every second one that was preempted, while it waits; all others go on as if it had not been."""
    engine, arriving, outputs = small_engine(runner, name), iter(loads.items()), {}
    preempted: dict[str, bool] = {}
    for _ in range(MANY_STEPS):
        for request, load in islice(arriving, 2):
            engine.add_request(request, load.prompt, load.params)
        outputs |= {output.request_id: output for output in engine.step() if output.finished}
        requests = [tracked.answers[0].request for tracked in engine._tracked.values()]
        waiting = [request for request in requests if request.slot is None and request.num_preemptions]
        for request in waiting:
            if preempted.setdefault(request.request_id, len(preempted) % 2 == 0):
                outputs[request.request_id] = engine.abort(request.request_id)
        if not engine.has_unfinished:
            break
    assert outputs.keys() == loads.keys()
    aborted = {request for request, is_aborted in preempted.items() if is_aborted}
    assert aborted
    for request, output in outputs.items():
        token_ids = expected[request].outputs[0].token_ids
        if request in aborted:
            assert output.outputs[0].finish_reason == "abort"
            assert output.outputs[0].token_ids == token_ids[: len(output.outputs[0].token_ids)]
        else:
            assert as_answer(output) == as_answer(expected[request])
    assert engine.scheduler.num_free_pages == engine._config.group_pages


@pytest.mark.parametrize("name", ["full"], indirect=True)  # a window's table is wider than its programs have it
def test_rectangles_give_the_same_three_at_a_time(
    runner: SharedRunner, loads: dict[str, Load], expected: dict[str, RequestOutput]
) -> None:
    """Each request reserves all that the longest would take, in a pool for three and eleven twelfths."""
    engine = runner.engine(tokenizer=NumberTokenizer(), cache="contiguous", num_kv_pages=3 * 12 + 11)
    outputs, _ = serve(engine, loads)
    assert {request: as_answer(output) for request, output in outputs.items()} == {
        request: as_answer(output) for request, output in expected.items()
    }
    assert max(map(len, engine._runner.batches)) == 3
    counters = engine.scheduler.counters
    assert (counters.num_preemptions, counters.num_cached_tokens) == (0, 0)
