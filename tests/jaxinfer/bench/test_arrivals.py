"""Arrivals have the distribution that they are said to have."""

import math

import numpy as np
import pytest

from jaxinfer.bench.arrivals import arrival_times

NUMBER = 20_000
KOLMOGOROV_1_PERCENT = 1.628
"""Of samples from a distribution, one in a hundred is farther from it than this over the root of its size."""


def gaps(rate, burstiness, seed=0):
    times = arrival_times(NUMBER, rate, burstiness, np.random.default_rng(seed))
    assert times.shape == (NUMBER,) and times[0] == 0
    return np.diff(times)


def distance_from_exponential(found, rate):
    """Kolmogorov and Smirnov's: the largest difference of the cumulative distributions."""
    expected, ranks = -np.expm1(-rate * np.sort(found)), np.arange(len(found) + 1) / len(found)
    return max((ranks[1:] - expected).max(), (expected - ranks[:-1]).max())


@pytest.mark.parametrize("rate", [0.5, 40.0])
def test_poisson_gaps_are_exponential(rate):
    found = gaps(rate, 1.0)
    assert found.mean() == pytest.approx(1 / rate, rel=0.03)
    assert found.var() == pytest.approx(1 / rate**2, rel=0.06)
    assert distance_from_exponential(found, rate) < KOLMOGOROV_1_PERCENT / math.sqrt(NUMBER)
    # It can tell: other gaps of the same mean are not taken for these.
    assert distance_from_exponential(gaps(rate, 1.3), rate) > 3 * KOLMOGOROV_1_PERCENT / math.sqrt(NUMBER)


def test_poisson_counts_of_a_second_have_their_mean_for_a_variance():
    times = arrival_times(NUMBER, 5.0, 1.0, np.random.default_rng(1))
    counts = np.bincount(times.astype(int))[:-1]
    assert counts.mean() == pytest.approx(5.0, rel=0.05)
    assert counts.var() == pytest.approx(5.0, rel=0.1)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_burstiness_changes_the_spread_and_not_the_rate(burstiness):
    found = gaps(10.0, burstiness, seed=3)
    assert found.mean() == pytest.approx(0.1, rel=0.05)
    assert (found.std() / found.mean()) ** 2 == pytest.approx(1 / burstiness, rel=0.1)


def test_an_infinite_rate_is_all_at_once():
    assert arrival_times(3, math.inf, 1.0, np.random.default_rng(0)).tolist() == [0, 0, 0]


def test_the_same_seed_gives_the_same_arrivals():
    assert np.array_equal(gaps(2.0, 1.0, seed=7), gaps(2.0, 1.0, seed=7))
    assert not np.array_equal(gaps(2.0, 1.0, seed=7), gaps(2.0, 1.0, seed=8))


@pytest.mark.parametrize(
    ("rate", "burstiness", "message"),
    [
        (0.0, 1.0, r"rate is 0\.0; it must be a number > 0, requests per second, or inf"),
        (-1.0, 1.0, "rate is -1"),
        (math.nan, 1.0, "rate is nan"),
        (1.0, 0.0, r"burstiness is 0\.0; it must be a finite number > 0"),
        (1.0, math.inf, "burstiness is inf"),
    ],
)
def test_what_is_no_rate_is_refused(rate, burstiness, message):
    with pytest.raises(ValueError, match=message):
        arrival_times(2, rate, burstiness, np.random.default_rng(0))
