"""Who the scheduler lets in, whom it lets wait and what it refuses, by examples worked out by hand."""

import pytest

from tests.scheduling import add, make_scheduler, step, summary


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
    with pytest.raises(ValueError, match="the prompt has 65 tokens and max_model_len is 64"):
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
