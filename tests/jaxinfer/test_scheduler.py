"""Each rule of the scheduler, by an example worked out by hand.

Everywhere here a page holds 4 tokens, a query block is 4 tokens and a step takes 16 prompt tokens, unless a test says
otherwise. Tokens drawn are 9, which stops nothing; 7 is the stop token. Two prompts have a beginning in common only
where a test says so. What happens when pages run out is in ``test_preemption``.
"""

import gc
import pickle
import weakref
import zlib
from collections.abc import Iterable
from typing import Any

import pytest

from jaxinfer.batch import Batch
from jaxinfer.config import EngineConfig
from jaxinfer.request import Request, RequestStatus
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.scheduler import Scheduler

TOKEN, STOP = 9, 7


def make_scheduler(**limits: Any) -> Scheduler:
    defaults = {"max_model_len": 64, "max_num_seqs": 4, "max_chunk_tokens": 16, "page_size": 4, "block_q": 4}
    return Scheduler(EngineConfig(**(defaults | {"num_kv_pages": 32} | limits)))


def make_request(name: str, prompt: list[int], max_new: int = 3, **options: Any) -> Request:
    return Request(name, prompt, SamplingParams(), frozenset({STOP}), max_new, seed=0, **options)


def prompt_of(name: str, num_prompt: int) -> list[int]:
    """A prompt that no other name has: its first token stands for the name."""
    return [1000 + zlib.crc32(name.encode()) % 2**30, *range(100, 99 + num_prompt)][:num_prompt]


def add(scheduler: Scheduler, name: str, num_prompt: int, max_new: int = 3) -> Request:
    request = make_request(name, prompt_of(name, num_prompt), max_new)
    scheduler.add(request)
    return request


def add_prompt(scheduler: Scheduler, name: str, prompt: Iterable[int], max_new: int = 3, **options: Any) -> Request:
    request = make_request(name, list(prompt), max_new, **options)
    scheduler.add(request)
    return request


def commit(scheduler: Scheduler, batch: Batch, token: int = TOKEN) -> list[Request]:
    return scheduler.commit(batch, [token] * len(batch.rows))


def step(scheduler: Scheduler, token: int = TOKEN) -> Batch:
    batch = scheduler.schedule()
    assert batch is not None
    commit(scheduler, batch, token)
    return batch


def summary(batch: Batch) -> list[tuple[str, int, int]]:
    """Name, start and number of tokens of each row."""
    return [(row.request.request_id, row.start, row.num_tokens) for row in batch.rows]


# From prompt to end


def test_a_request_is_prefilled_then_decoded_one_position_at_a_time():
    scheduler = make_scheduler()
    request = add(scheduler, "a", num_prompt=6, max_new=3)
    batches = [step(scheduler, token) for token in (11, 12, 13)]

    assert [summary(batch) for batch in batches] == [[("a", 0, 6)], [("a", 6, 1)], [("a", 7, 1)]]
    rows = [batch.rows[0] for batch in batches]
    assert [row.token_ids for row in rows] == [request.prompt_token_ids, None, None]
    assert [row.samples for row in rows] == [True] * 3
    assert [row.sample_index for row in rows] == [0, 1, 2]
    assert [batch.num_decode_rows for batch in batches] == [0, 1, 1]
    assert [batch.num_chunk_tokens for batch in batches] == [8, 0, 0]
    assert request.output_token_ids == [11, 12, 13]
    assert (request.status, request.finish_reason) == (RequestStatus.FINISHED, "length")
    assert scheduler.num_free_pages == (32,)
    assert not scheduler.has_unfinished
    assert scheduler.schedule() is None


def test_a_long_prompt_is_cut_into_pieces_and_only_the_last_samples():
    scheduler = make_scheduler()
    request = add(scheduler, "a", num_prompt=37)
    batches = [step(scheduler) for _ in range(3)]

    rows = [batch.rows[0] for batch in batches]
    assert [(row.start, row.num_tokens) for row in rows] == [(0, 16), (16, 16), (32, 5)]
    assert [token for row in rows for token in row.token_ids or ()] == request.prompt_token_ids
    assert [row.samples for row in rows] == [False, False, True]
    assert [batch.num_chunk_tokens for batch in batches] == [16, 16, 8]


def test_commit_returns_the_requests_that_changed_in_the_order_of_the_rows():
    scheduler = make_scheduler()
    first = add(scheduler, "first", num_prompt=3)
    step(scheduler)
    second, long = add(scheduler, "second", num_prompt=3), add(scheduler, "long", num_prompt=30)

    assert commit(scheduler, scheduler.schedule()) == [first, second]  # the piece of ``long`` ends no prompt
    assert (len(first.output_token_ids), len(second.output_token_ids), len(long.output_token_ids)) == (2, 1, 0)


def test_commit_needs_a_token_for_each_row():
    scheduler = make_scheduler()
    request = add(scheduler, "a", num_prompt=3)
    batch = scheduler.schedule()
    for token_ids in ([], [1, 2]):
        with pytest.raises(ValueError, match=f"{len(token_ids)} tokens .* 1 rows"):
            scheduler.commit(batch, token_ids)
    assert request.output_token_ids == []


# Budgets


def test_pieces_are_counted_with_their_padding():
    scheduler = make_scheduler()
    for name in "abc":
        add(scheduler, name, num_prompt=5)
    batch = step(scheduler)
    assert summary(batch) == [("a", 0, 5), ("b", 0, 5)]  # 8 + 8 of 16: unpadded, a part of c would have had room
    assert batch.num_chunk_tokens == 16
    assert scheduler.num_waiting == 1


def test_a_prompt_gets_what_padding_left_of_the_budget():
    scheduler = make_scheduler()
    add(scheduler, "a", num_prompt=5)
    add(scheduler, "b", num_prompt=20)
    assert summary(step(scheduler)) == [("a", 0, 5), ("b", 0, 8)]
    assert summary(step(scheduler)) == [("a", 5, 1), ("b", 8, 12)]


def test_decode_rows_come_first_and_take_nothing_of_the_prompts_budget():
    scheduler = make_scheduler()
    add(scheduler, "a", num_prompt=4)
    add(scheduler, "b", num_prompt=4)
    step(scheduler)
    add(scheduler, "c", num_prompt=16)
    batch = step(scheduler)
    assert summary(batch) == [("a", 4, 1), ("b", 4, 1), ("c", 0, 16)]
    assert (batch.num_decode_rows, batch.num_chunk_tokens) == (2, 16)


def test_a_prompt_under_way_goes_before_those_that_wait():
    scheduler = make_scheduler()
    add(scheduler, "a", num_prompt=20)
    add(scheduler, "b", num_prompt=4)
    assert summary(step(scheduler)) == [("a", 0, 16)]
    assert summary(step(scheduler)) == [("a", 16, 4), ("b", 0, 4)]


def test_no_more_than_max_num_seqs_run():
    scheduler = make_scheduler(max_num_seqs=2)
    requests = [add(scheduler, name, num_prompt=2, max_new=2) for name in "abc"]
    step(scheduler)
    assert (scheduler.num_running, scheduler.num_waiting) == (2, 1)
    step(scheduler)
    assert [request.finish_reason for request in requests] == ["length", "length", None]
    assert summary(step(scheduler)) == [("c", 0, 2)]


# Admission


def test_a_head_that_does_not_fit_blocks_those_behind():
    scheduler = make_scheduler(num_kv_pages=6)
    add(scheduler, "running", num_prompt=4, max_new=2)  # 2 pages
    step(scheduler)
    add(scheduler, "large", num_prompt=17, max_new=1)  # 5 pages: one too many while the first runs
    add(scheduler, "small", num_prompt=1, max_new=1)  # 1 page, which would fit
    assert summary(step(scheduler)) == [("running", 4, 1)]
    assert summary(step(scheduler)) == [("large", 0, 16)]


def test_admission_leaves_room_for_one_more_page_of_each_not_for_the_worst_case():
    scheduler = make_scheduler(num_kv_pages=6)
    for name in "abc":
        add(scheduler, name, num_prompt=4, max_new=17)  # 5 pages each in the end
    assert summary(step(scheduler)) == [("a", 0, 4), ("b", 0, 4), ("c", 0, 4)]  # 2 pages each: its prompt and 4 more
    scheduler = make_scheduler(num_kv_pages=5)
    for name in "abc":
        add(scheduler, name, num_prompt=4, max_new=17)
    assert summary(step(scheduler)) == [("a", 0, 4), ("b", 0, 4)]


def test_room_for_the_worst_case_is_enough_where_it_is_less_than_one_more_page():
    scheduler = make_scheduler(num_kv_pages=3)
    for name in "abc":
        add(scheduler, name, num_prompt=3, max_new=2)  # 4 positions
    assert summary(step(scheduler)) == [("a", 0, 3), ("b", 0, 3), ("c", 0, 3)]


def test_a_running_prompt_is_counted_whole_before_its_pages_are_taken():
    scheduler = make_scheduler(num_kv_pages=9)
    add(scheduler, "a", num_prompt=20, max_new=9)  # 5 pages, and 1 to grow, of which the first step takes 4
    add(scheduler, "b", num_prompt=9, max_new=9)  # 3 and 1
    assert summary(step(scheduler)) == [("a", 0, 16)]
    assert summary(step(scheduler)) == [("a", 16, 4)]
    assert scheduler.num_waiting == 1
    scheduler = make_scheduler(num_kv_pages=10)
    add(scheduler, "a", num_prompt=20, max_new=9)
    add(scheduler, "b", num_prompt=9, max_new=9)
    step(scheduler)
    assert summary(step(scheduler)) == [("a", 16, 4), ("b", 0, 9)]


def test_two_whose_worst_cases_fill_the_pool_run_together_to_the_end():
    scheduler = make_scheduler(num_kv_pages=8)
    for name in "ab":
        add(scheduler, name, num_prompt=4, max_new=13)  # 16 positions, 4 pages each
    step(scheduler)
    assert scheduler.num_running == 2
    for _ in range(11):
        step(scheduler)
    assert scheduler.num_free_pages == (0,)
    step(scheduler)
    assert scheduler.num_free_pages == (8,)
    assert scheduler.counters.num_preemptions == 0


def test_room_that_a_finished_request_leaves_lets_the_head_in():
    scheduler = make_scheduler(num_kv_pages=4)
    add(scheduler, "a", num_prompt=8, max_new=3)  # 3 pages
    add(scheduler, "b", num_prompt=8, max_new=3)
    assert summary(step(scheduler)) == [("a", 0, 8)]
    assert summary(step(scheduler)) == [("a", 8, 1)]
    assert summary(step(scheduler)) == [("a", 9, 1)]
    assert summary(step(scheduler)) == [("b", 0, 8)]


def test_pages_are_taken_only_when_a_token_needs_one():
    scheduler = make_scheduler()
    request = add(scheduler, "a", num_prompt=3, max_new=20)
    held = []
    for _ in range(6):
        step(scheduler)
        held.append(len(request.page_tables[0].pages))
    assert held == [1, 1, 2, 2, 2, 2]  # 3, 4, then 5 to 8 tokens in the cache


@pytest.mark.parametrize(("num_prompt", "max_new"), [(16, 0), (16, 1), (1, 16), (10, 7)])
def test_the_whole_pool_is_room_and_the_last_token_needs_none(num_prompt, max_new):
    scheduler = make_scheduler(num_kv_pages=4)
    request = add(scheduler, "a", num_prompt, max_new)  # 16 positions
    while scheduler.has_unfinished:
        step(scheduler)
    assert len(request.output_token_ids) == max_new


@pytest.mark.parametrize(("num_prompt", "max_new"), [(17, 0), (17, 1), (16, 2), (1, 17)])
def test_what_can_never_fit_is_refused_with_the_numbers(num_prompt, max_new):
    scheduler = make_scheduler(num_kv_pages=4)
    numbers = f"{num_prompt} tokens .* {max_new} more .* 64.* 5 KV pages of 4 .* has 4, for 16 tokens; .*num_kv_pages"
    with pytest.raises(ValueError, match=numbers):  # 17 positions take 5 pages; the dummy page is no fifth one
        add(scheduler, "big", num_prompt, max_new)
    assert not scheduler.has_unfinished


def test_a_request_that_fits_one_group_and_not_another_is_refused_with_the_numbers_of_that_group():
    """The windowed group has 3 pages where the other has 4, of up to 16 and 10, so it is short first."""
    scheduler = make_scheduler(windows=(None, 20), num_kv_pages=4)
    assert scheduler.num_free_pages == (4, 3)
    add(scheduler, "fits", num_prompt=12, max_new=1)
    with pytest.raises(ValueError, match=r"13 tokens .* 4 KV pages of 4 tokens of the layers with window 20.* has 3"):
        add(scheduler, "big", num_prompt=13, max_new=1)


def test_a_windowed_group_refuses_nothing_for_its_length():
    scheduler = make_scheduler(windows=(5,), num_kv_pages=7)  # (5 + 16) / 4 rounded up, and 1
    request = add(scheduler, "a", num_prompt=40, max_new=24)
    most = 0
    while scheduler.has_unfinished:
        step(scheduler)
        most = max(most, 7 - scheduler.num_free_pages[0])
    assert len(request.output_token_ids) == 24
    assert most <= 6


def test_a_pool_of_the_window_and_a_page_holds_a_request_of_any_length():
    """5 positions may lie in three pages; the prompt is read in pieces of what there is room for."""
    scheduler = make_scheduler(windows=(5,), num_kv_pages=3)
    request = add(scheduler, "a", num_prompt=40, max_new=24)
    while scheduler.has_unfinished:
        assert step(scheduler).rows[0].num_tokens <= 3 * 4
    assert len(request.output_token_ids) == 24
    with pytest.raises(ValueError, match="3 KV pages of 4 tokens, and the pool has 2"):
        add(make_scheduler(windows=(5,), num_kv_pages=2), "a", num_prompt=40, max_new=24)


def test_a_prompt_longer_than_the_model_is_refused_with_the_numbers():
    scheduler = make_scheduler()
    with pytest.raises(ValueError, match="'a' has a prompt of 65 tokens and max_model_len is 64"):
        add(scheduler, "a", num_prompt=65, max_new=0)
    assert not scheduler.has_unfinished


@pytest.mark.parametrize("max_new", [-1, 5])
def test_max_new_tokens_must_have_room_behind_the_prompt(max_new):
    scheduler = make_scheduler()
    with pytest.raises(ValueError, match=rf"max_new_tokens {max_new}; .* in \[0, 4\]"):
        add(scheduler, "a", num_prompt=60, max_new=max_new)


def test_an_empty_prompt_is_refused_and_the_others_go_on():
    scheduler = make_scheduler()
    other = add(scheduler, "other", num_prompt=2, max_new=1)
    with pytest.raises(ValueError, match="'a' has an empty prompt"):
        add(scheduler, "a", num_prompt=0)
    step(scheduler)
    assert other.finish_reason == "length"


def test_an_id_in_use_is_refused():
    scheduler = make_scheduler()
    request = add(scheduler, "a", num_prompt=2, max_new=1)
    with pytest.raises(ValueError, match="'a' is in use"):
        add(scheduler, "a", num_prompt=2)  # while it waits
    batch = scheduler.schedule()
    with pytest.raises(ValueError, match="'a' is in use"):
        add(scheduler, "a", num_prompt=2)  # while it runs
    commit(scheduler, batch)
    assert request.is_finished
    add(scheduler, "a", num_prompt=2)
    assert scheduler.num_waiting == 1


# Ends


def test_a_prompt_of_exactly_the_maximal_length_is_processed_and_draws_nothing():
    scheduler = make_scheduler(max_model_len=24, num_kv_pages=6)
    request = add(scheduler, "a", num_prompt=24, max_new=0)
    first, second = scheduler.schedule(), scheduler.schedule()
    assert [row.samples for batch in (first, second) for row in batch.rows] == [False, False]
    assert scheduler.schedule() is None
    assert commit(scheduler, first) == []
    assert commit(scheduler, second) == [request]
    assert (request.finish_reason, request.output_token_ids) == ("length", [])
    assert scheduler.num_free_pages == (6,)


def test_max_tokens_zero_ends_with_the_prompt():
    scheduler = make_scheduler()
    request = add(scheduler, "a", num_prompt=3, max_new=0)
    batch = step(scheduler, token=STOP)  # ignored: the row does not sample
    assert not batch.rows[0].samples
    assert (request.finish_reason, request.output_token_ids) == ("length", [])


def test_a_sequence_may_fill_the_model_and_not_pass_it():
    scheduler = make_scheduler(max_model_len=8)
    request = add(scheduler, "a", num_prompt=5, max_new=3)
    starts = []
    while scheduler.has_unfinished:
        starts += [row.start + row.num_tokens - 1 for row in step(scheduler).rows]
    assert starts == [4, 5, 6]  # position 7 is that of the last token, which no step is fed
    assert request.num_prompt_tokens + len(request.output_token_ids) == 8


def test_a_stop_token_ends_and_is_kept():
    scheduler = make_scheduler()
    request = add(scheduler, "a", num_prompt=3, max_new=10)
    step(scheduler)
    step(scheduler, token=STOP)
    assert (request.finish_reason, request.output_token_ids) == ("stop", [TOKEN, STOP])
    assert scheduler.num_free_pages == (32,)


def test_a_stop_token_at_the_maximal_length_is_a_stop():
    scheduler = make_scheduler()
    request = add(scheduler, "a", num_prompt=3, max_new=1)
    step(scheduler, token=STOP)
    assert request.finish_reason == "stop"


def test_a_token_that_stops_one_request_does_not_stop_another():
    scheduler = make_scheduler()
    request = Request("a", [1, 2], SamplingParams(), frozenset(), 2, seed=0)
    scheduler.add(request)
    step(scheduler, token=STOP)
    assert not request.is_finished


# Launched ahead


def test_a_stop_is_noticed_one_step_late_and_the_surplus_token_is_dropped():
    scheduler = make_scheduler()
    stopping, other = add(scheduler, "stopping", 3, max_new=10), add(scheduler, "other", 3, max_new=10)
    first, second = scheduler.schedule(), scheduler.schedule()
    assert summary(second) == [("stopping", 3, 1), ("other", 3, 1)]

    assert scheduler.commit(first, [STOP, TOKEN]) == [stopping, other]
    assert stopping.finish_reason == "stop"
    third = scheduler.schedule()
    assert summary(third) == [("other", 4, 1)]

    assert scheduler.commit(second, [55, 56]) == [other]
    assert stopping.output_token_ids == [STOP]
    assert other.output_token_ids == [TOKEN, 56]


def test_an_end_by_length_leaves_no_surplus_row():
    scheduler = make_scheduler()
    request = add(scheduler, "a", num_prompt=3, max_new=4)
    batches = list(iter(scheduler.schedule, None))  # nothing is committed, so as far ahead as it goes
    assert [summary(batch) for batch in batches] == [[("a", 0, 3)], [("a", 3, 1)], [("a", 4, 1)], [("a", 5, 1)]]
    assert [batch.rows[0].sample_index for batch in batches] == [0, 1, 2, 3]
    for batch in batches:
        assert not request.is_finished
        commit(scheduler, batch)
    assert (request.finish_reason, len(request.output_token_ids)) == ("length", 4)


def test_nothing_is_scheduled_while_all_that_runs_waits_for_a_commit():
    scheduler = make_scheduler()
    add(scheduler, "a", num_prompt=3, max_new=1)
    batch = scheduler.schedule()
    assert scheduler.schedule() is None
    assert scheduler.has_unfinished
    commit(scheduler, batch)
    assert not scheduler.has_unfinished


def test_slot_and_pages_of_a_stop_go_to_the_next_while_the_surplus_step_runs():
    scheduler = make_scheduler(max_num_seqs=1, num_kv_pages=3)
    stopping, following = add(scheduler, "a", 4, max_new=9), add(scheduler, "b", 4, max_new=9)
    first, surplus = scheduler.schedule(), scheduler.schedule()
    slot, pages = stopping.slot, list(stopping.page_tables[0].pages)
    commit(scheduler, first, STOP)
    assert (stopping.slot, stopping.page_tables) == (None, [])

    third = scheduler.schedule()
    assert summary(third) == [("b", 0, 4)]
    assert following.slot == slot
    assert following.page_tables[0].pages[0] in pages
    assert commit(scheduler, surplus) == []
    assert commit(scheduler, third) == [following]
    assert following.output_token_ids == [TOKEN]


# Aborts


def test_abort_of_a_waiting_request():
    scheduler = make_scheduler()
    requests = [add(scheduler, name, num_prompt=3) for name in "abc"]
    assert scheduler.abort("b") is requests[1]
    assert requests[1].finish_reason == "abort"
    assert scheduler.num_waiting == 2
    assert summary(step(scheduler)) == [("a", 0, 3), ("c", 0, 3)]


def test_abort_of_an_unknown_or_finished_id_changes_nothing():
    scheduler = make_scheduler()
    request = add(scheduler, "a", num_prompt=3, max_new=1)
    assert scheduler.abort("b") is None
    step(scheduler)
    assert scheduler.abort("a") is None
    assert request.finish_reason == "length"


@pytest.mark.parametrize("num_launched", range(6))
@pytest.mark.parametrize("depth", range(3))
def test_abort_at_any_point_returns_all_at_once_and_leaves_the_others_alone(num_launched, depth):
    scheduler = make_scheduler()
    other = add(scheduler, "other", num_prompt=4, max_new=7)
    victim = add(scheduler, "victim", num_prompt=30, max_new=6)  # three steps of prefill, then decode
    in_flight, launched, num_left = [], 0, None
    while scheduler.has_unfinished or in_flight:
        if launched == num_launched and num_left is None:
            num_committed = len(victim.output_token_ids)
            assert scheduler.abort("victim") is victim
            assert scheduler.num_free_pages == (32 - sum(len(table.pages) for table in other.page_tables),)
            num_left = scheduler.num_running + scheduler.num_waiting
        if (batch := scheduler.schedule()) is not None:
            in_flight.append(batch)
            launched += 1
        while len(in_flight) > (depth if batch else 0):
            commit(scheduler, in_flight.pop(0))
    assert num_left == 1
    assert (victim.finish_reason, victim.slot, victim.page_tables) == ("abort", None, [])
    assert len(victim.output_token_ids) == num_committed
    assert (other.finish_reason, other.output_token_ids) == ("length", [TOKEN] * 7)
    assert scheduler.num_free_pages == (32,)


def test_a_new_request_with_the_id_of_an_aborted_one_gets_none_of_its_tokens():
    scheduler = make_scheduler()
    add(scheduler, "a", num_prompt=3)
    in_flight = scheduler.schedule()
    scheduler.abort("a")
    successor = add(scheduler, "a", num_prompt=3)
    assert commit(scheduler, in_flight) == []
    assert successor.output_token_ids == []
    assert summary(step(scheduler)) == [("a", 0, 3)]


def test_an_abort_lets_the_next_one_in():
    scheduler = make_scheduler(max_num_seqs=1)
    add(scheduler, "a", num_prompt=3)
    add(scheduler, "b", num_prompt=3)
    step(scheduler)
    scheduler.abort("a")
    assert summary(step(scheduler)) == [("b", 0, 3)]


# Slots and memory


def test_running_requests_hold_different_slots_and_a_freed_one_is_taken_again():
    scheduler = make_scheduler(max_num_seqs=3)
    requests = [add(scheduler, name, num_prompt=3, max_new=20) for name in "abc"]
    step(scheduler)
    assert sorted(request.slot for request in requests) == [0, 1, 2]
    freed = requests[1].slot
    scheduler.abort("b")
    late = add(scheduler, "d", num_prompt=3, max_new=20)
    step(scheduler)
    assert late.slot == freed


def test_a_slot_does_not_change_while_a_request_runs():
    scheduler = make_scheduler()
    requests = [add(scheduler, name, num_prompt=3, max_new=n) for name, n in (("a", 2), ("b", 9), ("c", 9))]
    step(scheduler)
    slots = [request.slot for request in requests]
    add(scheduler, "d", num_prompt=20, max_new=9)
    for _ in range(5):
        step(scheduler)
    assert [request.slot for request in requests] == [None, *slots[1:]]


def test_a_finished_request_is_forgotten():
    scheduler = make_scheduler()
    references = [weakref.ref(add(scheduler, name, num_prompt=3, max_new=2)) for name in "abcd"]
    scheduler.abort("b")
    step(scheduler)
    scheduler.abort("c")
    step(scheduler)
    gc.collect()
    assert [reference() for reference in references] == [None] * 4


def test_a_head_that_found_no_room_is_forgotten_when_it_is_aborted():
    scheduler = make_scheduler(num_kv_pages=4)
    add(scheduler, "a", num_prompt=8, max_new=3)
    reference = weakref.ref(add(scheduler, "b", num_prompt=8))
    step(scheduler)
    assert scheduler.num_waiting == 1
    scheduler.abort("b")
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_what_the_scheduler_keeps_does_not_grow_with_the_requests_it_served(prefix_cache):
    scheduler, sizes = make_scheduler(prefix_cache=prefix_cache), []
    for i in range(4000):
        add(scheduler, f"request-{i}", num_prompt=1 + i % 9, max_new=i % 5)
        if i % 7 == 0:
            scheduler.abort(f"request-{i}")
        if scheduler.num_waiting > 3:
            step(scheduler, token=STOP if i % 11 == 0 else TOKEN)
        if i % 1000 == 999:
            while scheduler.has_unfinished:
                step(scheduler)
            sizes.append(len(pickle.dumps(scheduler)))
    assert max(sizes[1:]) < sizes[0] + 1000  # the 32 pages may be known or not; of 3,000 requests nothing is left


# Prefixes, as the scheduler uses them


def test_a_second_request_computes_only_what_the_first_has_not():
    scheduler = make_scheduler()
    first = add_prompt(scheduler, "first", range(12))
    step(scheduler)
    second = add_prompt(scheduler, "second", [*range(10), 50, 51])
    assert summary(step(scheduler)) == [("first", 12, 1), ("second", 8, 4)]
    assert second.page_tables[0].pages[:2] == first.page_tables[0].pages[:2]
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 8)
    counters = scheduler.counters
    assert (counters.num_prompt_tokens, counters.num_cached_tokens) == (24, 8)


def test_of_a_prompt_that_is_wholly_cached_the_last_page_is_read_once_more():
    scheduler = make_scheduler()
    for name in "ab":
        request = add_prompt(scheduler, name, range(12), max_new=1)
        step(scheduler)
    assert request.num_cached_tokens == 8
    assert request.output_token_ids == [TOKEN]


def test_two_that_arrive_together_share_in_the_same_step():
    scheduler = make_scheduler()
    requests = [add_prompt(scheduler, name, [*range(8), ord(name)]) for name in "ab"]
    assert summary(step(scheduler)) == [("a", 0, 9), ("b", 8, 1)]  # 12 + 4 of the 16 tokens
    tables = [request.page_tables[0].pages for request in requests]
    assert tables[0][:2] == tables[1][:2]
    assert tables[0][2] != tables[1][2]


def test_only_the_piece_that_is_scheduled_can_be_shared():
    scheduler = make_scheduler(max_chunk_tokens=12)
    for name in "ab":
        add_prompt(scheduler, name, range(24))
    assert summary(step(scheduler)) == [("a", 0, 12)]
    assert summary(step(scheduler)) == [("a", 12, 12)]
    assert summary(step(scheduler)) == [("a", 24, 1), ("b", 20, 4)]


def test_drawn_tokens_are_found_in_the_prompt_of_a_later_turn():
    scheduler = make_scheduler()
    add_prompt(scheduler, "a", range(6), max_new=7)
    while scheduler.has_unfinished:
        step(scheduler)
    turn = add_prompt(scheduler, "b", [*range(6), *[TOKEN] * 7, 30])
    step(scheduler)
    assert turn.num_cached_tokens == 12  # the last drawn token was fed to no step


def test_other_identities_share_nothing():
    scheduler = make_scheduler()
    for name, identity in (("a", ()), ("b", ("x",)), ("c", ("x",))):
        request = add_prompt(scheduler, name, range(9), cache_identity=identity)
        step(scheduler)
        assert request.num_cached_tokens == (8 if name == "c" else 0)


def test_nothing_is_shared_that_was_known_before_the_prefixes_were_forgotten():
    scheduler = make_scheduler()
    add_prompt(scheduler, "a", range(9))
    step(scheduler)
    scheduler.forget_prefixes()
    for name, num_cached in (("b", 0), ("c", 8)):
        request = add_prompt(scheduler, name, range(9))
        step(scheduler)
        assert request.num_cached_tokens == num_cached


def test_without_a_prefix_cache_every_token_is_computed():
    scheduler = make_scheduler(prefix_cache=False)
    for name in "ab":
        add_prompt(scheduler, name, range(9), max_new=1)
        assert summary(step(scheduler)) == [(name, 0, 9)]
    assert scheduler.counters.num_cached_tokens == 0


def test_pages_of_prefixes_that_nobody_holds_are_room():
    scheduler = make_scheduler(num_kv_pages=4)
    for name in "abc":
        add(scheduler, name, num_prompt=16, max_new=1)
        assert summary(step(scheduler)) == [(name, 0, 16)]
        assert scheduler.num_free_pages == (4,)
    assert scheduler.counters.num_evicted_pages == 8


# Contiguous: the longest length at once


def test_a_contiguous_request_holds_the_pages_of_the_longest_from_its_admission():
    scheduler = make_scheduler(cache="contiguous", num_kv_pages=40)  # of 16 pages each
    requests = [add_prompt(scheduler, name, range(9)) for name in "abc"]
    assert summary(step(scheduler)) == [("a", 0, 9), ("b", 0, 4)]  # nothing is shared
    assert [len(request.page_tables[0].pages) for request in requests[:2]] == [16, 16]
    assert scheduler.num_free_pages == (8,)
    while scheduler.num_running == 2:
        step(scheduler)
    assert requests[0].is_finished
    step(scheduler)
    assert requests[2].status is RequestStatus.RUNNING
    while scheduler.has_unfinished:
        step(scheduler)
    assert scheduler.num_free_pages == (40,)
    assert scheduler.counters.num_preemptions == scheduler.counters.num_cached_tokens == 0


def test_a_contiguous_request_reserves_whatever_the_windows_are():
    scheduler = make_scheduler(cache="contiguous", windows=(None, 4), num_kv_pages=20)
    request = add(scheduler, "a", num_prompt=60, max_new=4)
    while scheduler.has_unfinished:
        step(scheduler)
        if not request.is_finished:
            assert [(table.first_page, len(table.pages)) for table in request.page_tables] == [(0, 16), (0, 16)]


def test_a_contiguous_pool_smaller_than_the_longest_length_takes_nobody():
    scheduler = make_scheduler(cache="contiguous", num_kv_pages=15)
    with pytest.raises(ValueError, match="16 KV pages of 4 tokens, and the pool has 15"):
        add(scheduler, "a", num_prompt=1, max_new=1)
