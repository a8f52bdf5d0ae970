"""What records come to: percentiles, throughputs, goodput."""

import statistics
from fractions import Fraction

import numpy as np
import pytest

from jaxinfer.bench.goodput import parse_targets
from jaxinfer.bench.load import LoadRun
from jaxinfer.bench.record import RequestRecord
from jaxinfer.bench.summary import Spread, summarize


def linear_percentile(values, percent):
    """By the definition, in exact numbers: at rank (n - 1) p, on the line between the values below and above."""
    ordered = sorted(map(Fraction, values))
    rank = Fraction(percent, 100) * (len(ordered) - 1)
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (rank - below) * (ordered[above] - ordered[below]))


@pytest.mark.parametrize("number", [1, 2, 3, 10, 101, 1000])
def test_percentiles_are_those_of_the_definition_and_of_numpy(number):
    seconds = np.random.default_rng(number).exponential(0.1, number).tolist()
    spread = Spread.of(seconds)
    for percent in (50, 90, 95, 99):
        found = getattr(spread, f"p{percent}")
        assert found == pytest.approx(1000 * linear_percentile(seconds, percent), rel=1e-12)
        assert found == pytest.approx(1000 * np.percentile(seconds, percent), rel=1e-12)
    assert spread.p50 == pytest.approx(1000 * statistics.median(seconds))
    assert spread.mean == pytest.approx(1000 * statistics.fmean(seconds))
    assert spread.max == 1000 * max(seconds)


def test_nothing_has_no_percentiles():
    assert Spread.of([]) is None


def record(sent, *text_times, ended=None, tokens=(None, None), due=None, error=None):
    return RequestRecord(
        due=sent if due is None else due,
        sent=sent,
        text_times=list(text_times),
        ended=ended,
        prompt_tokens=tokens[0],
        completion_tokens=tokens[1],
        error=error,
        message="" if error is None else f"{error}!",
    )


RECORDS = [
    record(0.0, 0.5, 1.0, ended=2.0, tokens=(10, 4)),  # TTFT 500, TPOT 500, E2E 2000, gap 500
    record(1.0, 1.25, 1.75, 2.0, ended=2.0, tokens=(20, 3), due=0.75),  # TTFT 250, TPOT 375, E2E 1000, gaps 500, 250
    record(2.0, 3.0, ended=3.0, tokens=(5, 1)),  # TTFT 1000, no TPOT, E2E 1000
    record(3.0, ended=3.1, error="500"),
    record(3.0, 3.05, ended=3.1, error="429"),
    record(4.0, ended=4.1, error="429"),
    record(4.0, 4.5),  # under way
]


def summary(records=RECORDS, targets="", seconds=4.0):
    run = LoadRun(records=list(records), seconds=seconds, cpu_share=0.25, stopped=True)
    return summarize(run, 1.5, parse_targets([targets] if targets else []))


def test_counts_and_throughputs():
    found = summary()
    assert (found.num_requests, found.num_answered, found.num_refused, found.num_failed) == (7, 3, 2, 1)
    assert found.num_unfinished == 1
    assert (found.errors, found.first_message) == ({"429": 2, "500": 1}, "500!")
    assert (found.input_tokens, found.output_tokens) == (35, 8)
    assert (found.input_tokens_per_second, found.output_tokens_per_second) == (35 / 4, 2.0)
    assert found.requests_per_second == 0.75
    assert found.arrival_rate == 6 / 4
    assert (found.rate, found.seconds, found.client_cpu_share) == (1.5, 4.0, 0.25)
    assert found.max_lateness_ms == 250
    assert found.goodput is None


def test_latencies_are_of_answered_requests():
    found = summary()
    assert (found.ttft.mean, found.ttft.p50, found.ttft.max) == (1750 / 3, 500, 1000)
    assert (found.tpot.mean, found.tpot.max) == (437.5, 500)
    assert (found.itl.mean, found.itl.p50) == (1250 / 3, 500)
    assert (found.e2e.p50, found.e2e.max) == (1000, 2000)


def test_tokens_that_a_server_does_not_count():
    found = summary([*RECORDS, record(0.0, 1.0, 2.0, ended=2.0)])
    assert not found.tokens_counted_by_server
    assert (found.input_tokens, found.input_tokens_per_second, found.output_tokens) == (None, None, 10)
    assert summary().tokens_counted_by_server


def test_a_run_without_an_answer():
    found = summary([record(1.0, ended=1.5, error="500")])
    assert (found.ttft, found.tpot, found.itl, found.e2e) == (None, None, None, None)
    assert (found.requests_per_second, found.arrival_rate) == (0, None)
    assert summary([]).num_requests == 0


@pytest.mark.parametrize(
    ("targets", "number"),
    [
        ("ttft:1000", 3),
        ("ttft:500", 2),  # at the target is within it
        ("ttft:499", 1),
        ("tpot:400", 2),  # one of them has one token, so that there is nothing to miss
        ("e2e:1000 tpot:10", 1),
        ("ttft:500,tpot:400", 1),
        ("e2e:1", 0),
    ],
)
def test_goodput_counts_who_meets_every_target(targets, number):
    assert summary(targets=targets).goodput == number / 4


def test_targets():
    assert parse_targets([]) == {}
    assert parse_targets(["ttft:500 tpot:50.5", "e2e:9000"]) == {"ttft": 500, "tpot": 50.5, "e2e": 9000}
    assert parse_targets([" ttft:1, tpot:2 "]) == {"ttft": 1, "tpot": 2}


@pytest.mark.parametrize("word", ["", "e2e", "e2e:", "ttft:-1", "ttft:0", "ttft:nan", "ttft:1e3", "itl:5", "ttft:1:2"])
def test_what_is_no_target_is_refused(word):
    with pytest.raises(ValueError, match="it must be METRIC:MILLISECONDS with one of ttft, tpot, e2e"):
        parse_targets([word])


def test_two_targets_of_one_metric_are_refused():
    with pytest.raises(ValueError, match="there are two targets of ttft"):
        parse_targets(["ttft:1", "ttft:2"])
