"""Each rule of the scheduler, by an example worked out by hand, with the limits of ``tests.scheduling``.

Two prompts have no beginning in common. Who is let in, what equal prompts share and what happens when pages run out
is in ``test_scheduler_admission``, ``test_scheduler_sharing`` and ``test_preemption``.
"""

import gc
import pickle
import weakref

import pytest

from jaxinfer.request import Request, RequestStatus
from jaxinfer.sampling_params import SamplingParams
from tests.scheduling import STOP, TOKEN, add, commit, make_scheduler, step, summary

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
    scheduler.end(requests[1])
    assert requests[1].finish_reason == "abort"
    assert scheduler.num_waiting == 2
    assert summary(step(scheduler)) == [("a", 0, 3), ("c", 0, 3)]


def test_abort_of_one_that_has_ended_changes_nothing():
    """Not even another one that has its name now."""
    scheduler = make_scheduler()
    request = add(scheduler, "a", num_prompt=3, max_new=1)
    step(scheduler)
    namesake = add(scheduler, "a", num_prompt=3)
    scheduler.end(request)
    assert request.finish_reason == "length"
    step(scheduler)
    scheduler.end(request)
    assert (namesake.finish_reason, namesake.output_token_ids) == (None, [TOKEN])


def test_requests_of_one_name_are_served_side_by_side():
    """Whether a name may come twice is for the engine to say."""
    scheduler = make_scheduler()
    first, second = (add(scheduler, "a", num_prompt=3, max_new=2) for _ in range(2))
    step(scheduler)
    scheduler.end(second)
    assert summary(step(scheduler)) == [("a", 3, 1)]
    assert (first.finish_reason, second.finish_reason) == ("length", "abort")
    assert scheduler.num_free_pages == (32,)


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
            scheduler.end(victim)
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
    request = add(scheduler, "a", num_prompt=3)
    in_flight = scheduler.schedule()
    scheduler.end(request)
    successor = add(scheduler, "a", num_prompt=3)
    assert commit(scheduler, in_flight) == []
    assert successor.output_token_ids == []
    assert summary(step(scheduler)) == [("a", 0, 3)]


def test_an_abort_lets_the_next_one_in():
    scheduler = make_scheduler(max_num_seqs=1)
    request = add(scheduler, "a", num_prompt=3)
    add(scheduler, "b", num_prompt=3)
    step(scheduler)
    scheduler.end(request)
    assert summary(step(scheduler)) == [("b", 0, 3)]


# Slots and memory


def test_running_requests_hold_different_slots_and_a_freed_one_is_taken_again():
    scheduler = make_scheduler(max_num_seqs=3)
    requests = [add(scheduler, name, num_prompt=3, max_new=20) for name in "abc"]
    step(scheduler)
    assert sorted(request.slot for request in requests) == [0, 1, 2]
    freed = requests[1].slot
    scheduler.end(requests[1])
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
    requests = [add(scheduler, name, num_prompt=3, max_new=2) for name in "abcd"]
    references = [weakref.ref(request) for request in requests]
    scheduler.end(requests[1])
    step(scheduler)
    scheduler.end(requests[2])
    step(scheduler)
    requests.clear()
    gc.collect()
    assert [reference() for reference in references] == [None] * 4


def test_a_head_that_found_no_room_is_forgotten_when_it_is_aborted():
    scheduler = make_scheduler(num_kv_pages=4)
    add(scheduler, "a", num_prompt=8, max_new=3)
    request = add(scheduler, "b", num_prompt=8)
    reference = weakref.ref(request)
    step(scheduler)
    assert scheduler.num_waiting == 1
    scheduler.end(request)
    del request
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_what_the_scheduler_keeps_does_not_grow_with_the_requests_it_served(prefix_cache):
    scheduler, sizes = make_scheduler(prefix_cache=prefix_cache), []
    for i in range(4000):
        request = add(scheduler, f"request-{i}", num_prompt=1 + i % 9, max_new=i % 5)
        if i % 7 == 0:
            scheduler.end(request)
        if scheduler.num_waiting > 3:
            step(scheduler, token=STOP if i % 11 == 0 else TOKEN)
        if i % 1000 == 999:
            while scheduler.has_unfinished:
                step(scheduler)
            sizes.append(len(pickle.dumps(scheduler)))
    assert max(sizes[1:]) < sizes[0] + 1000  # the 32 pages may be known or not; of 3,000 requests nothing is left
