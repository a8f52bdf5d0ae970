"""What requests share of equal prompts, and what each reserves in rectangles, by examples worked out by hand."""

import pytest

from jaxinfer.request import RequestStatus
from tests.scheduling import TOKEN, add, add_prompt, make_scheduler, step, summary

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
