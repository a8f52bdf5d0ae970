"""Very many short requests: what the scheduler keeps and how long it takes must not depend on how many it served."""

import gc
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxinfer.config import EngineConfig
from jaxinfer.request import Request
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.scheduler import Scheduler

NUM_WARM_UP = 1_000
PARAMS, NO_TOKENS = SamplingParams(), frozenset[int]()
STATM = Path("/proc/self/statm")
"""Sizes of this process in memory pages of 4 KiB or more: of all, and of what is resident."""


def arrivals(num_requests: int) -> Iterator[Request]:
    """Every third one begins as others do, and every sixteenth is long enough to run out of pages."""
    for number in range(num_requests):
        beginning = [7] * 8 if number % 3 == 0 else [number]
        max_new = 40 if number % 16 == 0 else 1 + number % 4
        yield Request(str(number), [*beginning, number % 9], PARAMS, NO_TOKENS, max_new, seed=0)


def resident_bytes() -> int:
    gc.collect()
    return int(STATM.read_text().split()[1]) * 4096


@pytest.mark.skipif(not STATM.exists(), reason="reads the resident memory as Linux tells it")
@pytest.mark.parametrize("num_requests", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_memory_is_flat_and_a_step_takes_no_longer_after_many_requests(num_requests):
    scheduler = Scheduler(
        EngineConfig(max_model_len=64, max_num_seqs=64, max_chunk_tokens=1024, page_size=2, num_kv_pages=128)
    )
    seconds, left, at_first = [], arrivals(num_requests), None
    while True:
        while scheduler.num_waiting < 64 and (request := next(left, None)) is not None:
            scheduler.add(request)
        begin = time.perf_counter()
        batch = scheduler.schedule()
        if batch is None:
            break
        scheduler.commit(batch, [5] * len(batch.rows))
        seconds.append(time.perf_counter() - begin)
        if at_first is None and int(request.request_id) >= NUM_WARM_UP:
            at_first = resident_bytes()
    assert resident_bytes() - at_first < 20 * num_requests

    tenth = len(seconds) // 10
    assert statistics.median(seconds[-tenth:]) < 2 * statistics.median(seconds[:tenth])

    assert scheduler.counters.num_cached_tokens > num_requests
    assert scheduler.counters.num_preemptions > num_requests / 100
    assert scheduler.counters.num_evicted_pages > num_requests / 100
