"""When requests arrive, whatever the server does meanwhile.

An open loop: the times are drawn before the run, so a server that falls behind meets the requests that it would meet
among users. A client that waits for an answer before it sends the next request would spare it them, and with them the
worst of its latencies (Gil Tene's "coordinated omission").
"""

import math

import numpy as np
from jaxtyping import Float64

from jaxinfer.value_checks import check_number


def check_arrivals(rate: float, burstiness: float) -> None:
    """Raises ValueError unless both are numbers that ``arrival_times`` takes."""
    check_number("rate", rate, "a number > 0, requests per second, or inf", lambda value: value > 0)
    check_number("burstiness", burstiness, "a finite number > 0", lambda value: 0 < value < math.inf)


def arrival_times(
    number: int, rate: float, burstiness: float, rng: np.random.Generator
) -> Float64[np.ndarray, " number"]:
    """Seconds from the beginning of a run, at which the first request arrives, to each arrival.

    The gaps are drawn from the gamma distribution of shape ``burstiness`` and mean 1 / ``rate``, as vLLM's benchmark
    draws them: 1 is a Poisson process, less comes in bursts, more is more regular. The square of their coefficient of
    variation is 1 / ``burstiness``.

    Args:
        number: of requests, 1 or more.
        rate: requests per second; inf for all at once.
        burstiness: > 0.
        rng: what is drawn from.

    Raises:
        ValueError: as ``check_arrivals``.
    """
    check_arrivals(rate, burstiness)
    if math.isinf(rate):
        return np.zeros(number)
    gaps = rng.gamma(burstiness, 1 / (rate * burstiness), number - 1)
    return np.concatenate([[0.0], np.cumsum(gaps)])
