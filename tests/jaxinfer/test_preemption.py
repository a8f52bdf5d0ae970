"""What happens when pages run out: who loses them, who goes on, and that nobody's tokens change by it.

In the examples worked out by hand a page holds 4 tokens and two requests start with one page each in a pool of 6: both
hold 3 pages when each has read its prompt of 4 tokens and been fed 8 of its own, in the ninth step. In the tenth the
earlier one needs another page.
"""

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from jaxinfer.batch import Batch
from jaxinfer.config import EngineConfig
from jaxinfer.engine import Engine
from jaxinfer.request import Request, RequestStatus
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.scheduler import Scheduler
from tests.fake_runner import expected_tokens
from tests.fakes import fake_engine

TOKEN, STOP = 9, 7


def make_scheduler(**limits: Any) -> Scheduler:
    small = {"max_model_len": 64, "max_num_seqs": 4, "max_chunk_tokens": 16, "page_size": 4, "block_q": 4}
    return Scheduler(EngineConfig(**(small | {"num_kv_pages": 6} | limits)))


def add(scheduler: Scheduler, name: str, num_prompt: int, max_new: int) -> Request:
    prompt = range(1000 * ord(name), 1000 * ord(name) + num_prompt)
    request = Request(name, list(prompt), SamplingParams(), frozenset({STOP}), max_new, seed=0)
    scheduler.add(request)
    return request


def step(scheduler: Scheduler) -> list[tuple[str, int, int]]:
    """Schedule and commit; name, start and number of tokens of each row."""
    batch = scheduler.schedule()
    assert batch is not None
    scheduler.commit(batch, [TOKEN] * len(batch.rows))
    return summary(batch)


def summary(batch: Batch) -> list[tuple[str, int, int]]:
    return [(row.request.request_id, row.start, row.num_tokens) for row in batch.rows]


def two_at_the_brink(num_steps: int = 9, max_new: int = 13, **limits: Any) -> tuple[Scheduler, Request, Request]:
    scheduler = make_scheduler(**limits)
    first, second = add(scheduler, "a", 4, max_new=13), add(scheduler, "b", 4, max_new)
    assert step(scheduler) == [("a", 0, 4), ("b", 0, 4)]
    for number in range(2, num_steps + 1):
        assert step(scheduler) == [("a", number + 2, 1), ("b", number + 2, 1)]
    return scheduler, first, second


# Who


def test_the_latest_loses_its_pages_waits_and_reads_what_is_gone_once_more():
    scheduler, first, second = two_at_the_brink()
    assert scheduler.num_free_pages == (0,)

    assert step(scheduler) == [("a", 12, 1)]
    assert (second.status, second.slot, second.page_tables) == (RequestStatus.WAITING, None, [])
    assert second.output_token_ids == [TOKEN] * 9
    assert (scheduler.num_running, scheduler.num_waiting, scheduler.num_free_pages) == (1, 1, (2,))
    for start in (13, 14, 15):
        assert step(scheduler) == [("a", start, 1)]
    assert first.finish_reason == "length"

    # Of its 12 tokens in the cache those of the last page are gone: the end of a prefix goes before its beginning.
    batch = scheduler.schedule()
    assert summary(batch) == [("b", 8, 5)]
    row = batch.rows[0]
    assert row.token_ids == [TOKEN] * 5
    assert (row.samples, row.sample_index, batch.num_decode_rows) == (True, 9, 0)
    scheduler.commit(batch, [11])
    for start in (13, 14, 15):
        assert step(scheduler) == [("b", start, 1)]
    assert second.output_token_ids == [*[TOKEN] * 9, 11, *[TOKEN] * 3]
    assert (second.finish_reason, second.num_preemptions, first.num_preemptions) == ("length", 1, 0)
    assert scheduler.num_free_pages == (6,)
    counters = scheduler.counters
    assert (counters.num_preemptions, counters.num_resumptions, counters.num_recomputed_tokens) == (1, 1, 4)
    assert (counters.num_prompt_tokens, counters.num_cached_tokens) == (8, 0)  # what it finds of its own is no hit


def test_without_a_prefix_cache_all_is_read_once_more():
    scheduler, *_ = two_at_the_brink(prefix_cache=False)
    for _ in range(4):
        step(scheduler)
    assert step(scheduler) == [("b", 0, 13)]
    assert scheduler.counters.num_recomputed_tokens == 12


def test_who_runs_out_and_is_itself_the_latest_waits():
    scheduler = make_scheduler()
    add(scheduler, "a", 4, max_new=13)
    latest = add(scheduler, "b", 7, max_new=10)
    assert step(scheduler) == [("a", 0, 4), ("b", 0, 7)]
    for number in range(2, 7):
        assert step(scheduler) == [("a", number + 2, 1), ("b", number + 5, 1)]
    assert step(scheduler) == [("a", 9, 1)]  # b would need its fourth page
    assert latest.status is RequestStatus.WAITING


def test_who_is_in_the_batch_already_keeps_its_pages():
    scheduler = make_scheduler(num_kv_pages=8)
    add(scheduler, "a", 4, max_new=13)
    add(scheduler, "b", 7, max_new=10)
    latest = add(scheduler, "c", 1, max_new=9)
    assert step(scheduler) == [("a", 0, 4), ("b", 0, 7), ("c", 0, 1)]
    for number in range(2, 7):
        assert step(scheduler) == [("a", number + 2, 1), ("b", number + 5, 1), ("c", number - 1, 1)]
    assert scheduler.num_free_pages == (0,)
    assert step(scheduler) == [("a", 9, 1), ("b", 12, 1)]  # b took a page of c, not of a
    assert latest.status is RequestStatus.WAITING


def test_a_prompt_under_way_takes_no_page_of_an_earlier_request_and_goes_on_when_there_is_one():
    scheduler = make_scheduler(num_kv_pages=12, max_chunk_tokens=4)
    add(scheduler, "a", 4, max_new=13)  # 4 pages in the end; it is to hold 3 when b is admitted, to 9 pages
    add(scheduler, "b", 36, max_new=1)
    assert step(scheduler) == [("a", 0, 4)]
    for number in range(2, 10):
        assert step(scheduler) == [("a", number + 2, 1), ("b", 4 * (number - 2), 4)]
    for start in (12, 13, 14, 15):
        assert step(scheduler) == [("a", start, 1)]
    assert step(scheduler) == [("b", 32, 4)]
    assert scheduler.counters.num_preemptions == 0


# Back


def test_the_preempted_goes_before_all_that_wait_even_where_they_would_fit():
    scheduler = make_scheduler(max_num_seqs=2)
    for name, num_prompt, max_new in (("a", 4, 13), ("b", 4, 13), ("c", 1, 1)):
        add(scheduler, name, num_prompt, max_new)
    for _ in range(9):
        step(scheduler)
    for start in range(12, 16):
        assert step(scheduler) == [("a", start, 1)]  # a slot and two pages are free
    assert step(scheduler) == [("b", 8, 5), ("c", 0, 1)]


def test_none_is_admitted_again_before_its_tokens_in_flight_are_known():
    scheduler, first, second = two_at_the_brink(num_steps=8)
    ninth, tenth = scheduler.schedule(), scheduler.schedule()
    assert summary(tenth) == [("a", 12, 1)]
    assert second.num_pending_samples == 1
    scheduler.end(first)  # now there is room for all it may ever need
    assert scheduler.schedule() is None

    assert scheduler.commit(ninth, [TOKEN, 55]) == [second]
    assert second.output_token_ids == [*[TOKEN] * 8, 55]
    batch = scheduler.schedule()
    assert summary(batch) == [("b", 8, 5)]
    assert list(batch.rows[0].token_ids)[-1] == 55
    assert scheduler.commit(tenth, [TOKEN]) == []
    assert first.finish_reason == "abort"


@pytest.mark.parametrize(("token", "max_new", "reason"), [(STOP, 13, "stop"), (TOKEN, 9, "length")])
def test_a_row_in_flight_may_end_it_while_it_waits(token, max_new, reason):
    scheduler, first, second = two_at_the_brink(num_steps=8, max_new=max_new)
    ninth, _ = scheduler.schedule(), scheduler.schedule()
    assert second.status is RequestStatus.WAITING
    assert scheduler.commit(ninth, [TOKEN, token]) == [first, second]
    assert (second.finish_reason, len(second.output_token_ids)) == (reason, 9)
    assert (scheduler.num_waiting, scheduler.num_running, scheduler.num_free_pages) == (0, 1, (2,))
    assert scheduler.counters.num_resumptions == 0


def test_abort_of_a_preempted_request():
    scheduler, first, second = two_at_the_brink(num_steps=8)
    ninth, _ = scheduler.schedule(), scheduler.schedule()
    scheduler.end(second)
    assert (second.finish_reason, scheduler.num_waiting, scheduler.num_free_pages) == ("abort", 0, (2,))
    assert scheduler.commit(ninth, [TOKEN, TOKEN]) == [first]
    assert second.output_token_ids == [TOKEN] * 8
    scheduler.end(second)
    add(scheduler, "b", 4, max_new=1)
    assert scheduler.num_waiting == 1


def test_a_preempted_request_comes_back_only_with_room_for_four_times_the_tokens():
    """When c ends, 7 pages are free. Its 13 tokens and 4 more, and 4 more of a, would take 6; with 16 each it is 10."""
    scheduler = make_scheduler(num_kv_pages=11, max_chunk_tokens=32)
    for name, num_prompt, max_new in (("a", 4, 25), ("c", 12, 10), ("b", 4, 25)):
        add(scheduler, name, num_prompt, max_new)
    for _ in range(9):
        assert len(step(scheduler)) == 3
    assert step(scheduler) == [("a", 12, 1), ("c", 20, 1)]
    assert (scheduler.num_running, scheduler.num_waiting, scheduler.num_free_pages) == (1, 1, (7,))
    for start in range(13, 28):
        assert step(scheduler) == [("a", start, 1)]
    assert step(scheduler)[0][0] == "b"


# No thrashing, and every token as it would have been


def serve(engine: Engine, prompts: Sequence[list[int]], max_tokens: Sequence[int]) -> dict[str, list[int]]:
    for i, (prompt, limit) in enumerate(zip(prompts, max_tokens, strict=True)):
        engine.add_request(str(i), prompt, SamplingParams(temperature=0, max_tokens=limit))
    tokens = {}
    while engine.has_unfinished:
        for output in engine.step():
            assert output.outputs[0].finish_reason == "length"
            tokens[output.request_id] = output.outputs[0].token_ids
    return tokens


@pytest.mark.parametrize("windows", [(None,), (12,), (None, 12)])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_a_pool_too_small_for_the_load_changes_no_output(windows, prefix_cache):
    draw = random.Random(0)
    beginnings = [[draw.randrange(1000) for _ in range(20)] for _ in range(3)]
    prompts = [
        draw.choice(beginnings)[: draw.randrange(21)] + [draw.randrange(1000) for _ in range(1 + draw.randrange(8))]
        for _ in range(60)
    ]
    max_tokens = [draw.randrange(1, 65 - len(prompt)) for prompt in prompts]
    limits = {"windows": windows, "max_num_seqs": 8, "max_chunk_tokens": 8, "block_q": 4, "page_size": 2}
    limits["prefix_cache"] = prefix_cache
    small = fake_engine(num_kv_pages=14 if windows == (12,) else 36, **limits)
    requests = {}
    schedule = small.scheduler.schedule

    def schedule_and_note() -> Batch | None:
        batch = schedule()
        requests.update({row.request.request_id: row.request for row in batch.rows} if batch else {})
        return batch

    small.scheduler.schedule = schedule_and_note
    tokens = serve(small, prompts, max_tokens)
    assert tokens == serve(fake_engine(num_kv_pages=1000, **limits), prompts, max_tokens)
    assert tokens == {
        str(i): expected_tokens(prompt, limit, windows)
        for i, (prompt, limit) in enumerate(zip(prompts, max_tokens, strict=True))
    }
    scheduler, most = small.scheduler, max(request.num_preemptions for request in requests.values())
    assert scheduler.counters.num_preemptions >= scheduler.counters.num_resumptions > 0  # some end while they wait
    assert 1 <= most <= math.ceil(math.log(64 / 2, 4))
    assert (scheduler.counters.num_cached_tokens > 0) == prefix_cache
    assert scheduler.num_free_pages == small._config.group_pages
