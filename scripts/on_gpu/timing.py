"""How long something takes that is shorter than the launch of the program that it is in.

A kernel of a decode step takes 2 to 50 us, and jax needs more than that to start a program. So a program has many
launches in it, each with arrays of its own, which together are far larger than the L2 cache: none is served from there.
Programs are started back to back and waited for once, so that starting them is hidden behind those that run.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import jax

from scripts.on_gpu.settings import Settings

_RUNS = 5
_SECONDS_OF_A_RUN = 0.02
_MOST_CALLS = 500
_CACHES = 4
"""The arrays of a program are at least so many times the L2 cache, and at least ``_LEAST_BYTES``."""
_LEAST_BYTES = 256 * 2**20
_LEAST_LAUNCHES, _MOST_LAUNCHES = 5, 40
"""With fewer XLA makes no CUDA graph, in which a launch costs less."""


def num_launches(bytes_of_one: int, cache_bytes: int, settings: Settings) -> int:
    """Launches of a program, each of which reads ``bytes_of_one`` of its own."""
    if settings.tiny:
        return 2
    wanted = max(_LEAST_BYTES, _CACHES * cache_bytes)
    return min(_MOST_LAUNCHES, max(_LEAST_LAUNCHES, math.ceil(wanted / bytes_of_one)))


def seconds_of(call: Callable[[], Any], settings: Settings) -> float:
    """Seconds of one of many calls in a row that start work on the device: the best of several runs."""
    jax.block_until_ready(call())
    num_calls, num_runs = 1, 1
    if not settings.tiny:
        once = _seconds_of_run(call, 1)
        num_calls, num_runs = min(_MOST_CALLS, math.ceil(_SECONDS_OF_A_RUN / once)), _RUNS
    return min(_seconds_of_run(call, num_calls) for _ in range(num_runs)) / num_calls


def _seconds_of_run(call: Callable[[], Any], num_calls: int) -> float:
    begin, result = time.perf_counter(), None
    for _ in range(num_calls):
        result = call()
    jax.block_until_ready(result)
    return time.perf_counter() - begin
