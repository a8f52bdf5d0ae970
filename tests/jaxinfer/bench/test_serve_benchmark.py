"""A benchmark as a whole against a made-up server: what it asks, in which order, and what it does without an answer."""

import asyncio
import math

import pytest

from jaxinfer.bench.serve_benchmark import ServeBenchmark, WarmUpError, check_settings
from jaxinfer.bench.target import Target
from jaxinfer.bench.token_counts import FEW_WORDS, MORE_WORDS
from jaxinfer.bench.workload import Ask, GivenPrompts, MadeUpPrompts
from tests.sse_server import DONE, Answer, fake_server, refusal, text_event, usage_event

SETTINGS = {
    "rates": [5.0, math.inf],
    "burstiness": 2.0,
    "num_prompts": 3,
    "num_warmups": 2,
    "max_concurrency": 2,
    "timeout": 30.0,
    "seed": 1,
}


def two_tokens_for_each_word(path, body):
    """And one more for the prompt."""
    tokens = 2 * len(body["prompt"].split()) + 1
    return Answer([(0, text_event("a", "stop")), (0, usage_event(tokens, 1)), (0, DONE)])


def run(answer, workload, stopped=False, **settings):
    with fake_server(answer) as server:
        target = Target(root=server.url, endpoint="completions", model="m")
        benchmark = ServeBenchmark(target=target, workload=workload, **(SETTINGS | {"rates": [math.inf]} | settings))

        async def main():
            stop = asyncio.Event()
            if stopped:
                stop.set()
            return await benchmark.run(stop, lambda done, total: None)

        summaries = asyncio.run(main())
    return summaries, [(body["prompt"], body["max_tokens"]) for _, _, body in server.calls]


def test_made_up_prompts_have_the_tokens_that_the_server_counts():
    """It is asked about two prompts first, then come the warm-ups, then each run's own prompts."""
    summaries, calls = run(two_tokens_for_each_word, MadeUpPrompts([(41, 6)]), rates=[100.0, math.inf])
    assert [len(prompt.split()) for prompt, _ in calls[:2]] == [FEW_WORDS, MORE_WORDS]
    assert [(len(prompt.split()), max_tokens) for prompt, max_tokens in calls[2:]] == [(20, 6)] * 8
    assert len({prompt for prompt, _ in calls}) == 10
    assert [summary.input_tokens for summary in summaries] == [3 * 41, 3 * 41]
    assert [summary.rate for summary in summaries] == [100.0, math.inf]


def test_given_prompts_are_sent_as_they_are():
    asks = [Ask("one", 3), Ask("two", 4)]
    _, calls = run(two_tokens_for_each_word, GivenPrompts(asks), num_warmups=1, max_concurrency=1)
    assert calls == [("one", 3), ("one", 3), ("two", 4), ("one", 3)]


def test_a_server_that_counts_nothing_gets_a_word_for_each_token():
    _, calls = run(lambda path, body: Answer([(0, text_event("a", "stop")), (0, DONE)]), MadeUpPrompts([(41, 6)]))
    assert len(calls[-1][0].split()) == 41


def test_the_same_seed_sends_the_same_prompts():
    first, again = (run(two_tokens_for_each_word, MadeUpPrompts([(9, 1)]), max_concurrency=1)[1] for _ in range(2))
    other = run(two_tokens_for_each_word, MadeUpPrompts([(9, 1)]), max_concurrency=1, seed=2)[1]
    assert first == again != other


def test_a_server_that_refuses_the_first_request_is_not_measured():
    with pytest.raises(WarmUpError, match="a request before the first run was not answered: 404: no such model"):
        run(lambda path, body: refusal(404, "no such model"), GivenPrompts([Ask("one", 3)]))


def test_without_warmups_errors_are_counted():
    [summary], calls = run(lambda path, body: refusal(503, "full"), GivenPrompts([Ask("one", 3)]), num_warmups=0)
    assert (len(calls), summary.num_failed, summary.errors) == (3, 3, {"503": 3})


def test_a_stop_lets_no_run_begin():
    assert run(two_tokens_for_each_word, GivenPrompts([Ask("one", 3)]), stopped=True)[0] == []


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"rates": [1.0, 0.0]}, "rate is 0"),
        ({"burstiness": -1.0}, "burstiness is -1"),
        ({"num_prompts": 0}, "num_prompts is 0; it must be a whole number >= 1"),
        ({"num_warmups": -1}, "num_warmups is -1"),
        ({"max_concurrency": 0}, "max_concurrency is 0"),
        ({"timeout": 0.0}, "timeout is 0.0; it must be a number of seconds > 0"),
        ({"timeout": math.nan}, "timeout is nan"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_what_cannot_be_is_refused(setting, message):
    check_settings(**SETTINGS)
    with pytest.raises(ValueError, match=message):
        check_settings(**(SETTINGS | setting))
