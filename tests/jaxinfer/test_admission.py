"""When a waiting request may run: the pages that it and all running ones lack, counted by hand.

A page holds 4 tokens. Where nothing else is said a request may draw so much that its goal is its tokens and 4 more, the
size of a page.
"""

from collections.abc import Iterable

import pytest

from jaxinfer.admission import Admission
from jaxinfer.config import EngineConfig
from jaxinfer.kv_pages import KVPages
from jaxinfer.request import Request
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.scheduler import Scheduler

SIZE, DRAWS = 4, 1000


class Pool:
    """Pages and who runs in them."""

    def __init__(self, num_kv_pages: int, windows: tuple[int | None, ...] = (None,), **limits) -> None:
        small = {"max_model_len": 2048, "max_chunk_tokens": 8, "page_size": SIZE, "block_q": 4}
        self.config = EngineConfig(num_kv_pages=num_kv_pages, windows=windows, **(small | limits))
        self.pages = KVPages(self.config)
        self.admission = Admission(self.config, self.pages)
        self.running: list[Request] = []

    def run(self, prompt: Iterable[int]) -> Request:
        """A request that has read its prompt."""
        request = new_request(prompt)
        self.pages.open(request, 0)
        request.slot = len(self.running)
        request.num_prefill_tokens = request.num_known_tokens
        for end in range(SIZE, request.num_known_tokens + SIZE, SIZE):
            self.pages.slide([request])
            request.num_scheduled_tokens = min(end, request.num_known_tokens)
            self.pages.extend(request, request.num_scheduled_tokens)
            self.pages.register(request)
        self.running.append(request)
        return request

    def has_room(self, prompt: Iterable[int], num_preemptions: int = 0) -> bool:
        request = new_request(prompt)
        request.num_preemptions = num_preemptions
        return self.admission.has_room(request, self.pages.find_prefix(request), self.running)


def new_request(prompt: Iterable[int]) -> Request:
    return Request("r", list(prompt), SamplingParams(), frozenset(), DRAWS, seed=0)


@pytest.mark.parametrize(("num_kv_pages", "fits"), [(8, True), (7, False)])
def test_the_new_one_needs_its_tokens_and_a_page_more_and_each_running_one_a_page_more(num_kv_pages, fits):
    pool = Pool(num_kv_pages)
    pool.run(range(12))  # holds 3 pages, comes to 4
    assert pool.has_room(range(100, 112)) == fits  # 4 pages


@pytest.mark.parametrize(("num_preemptions", "num_kv_pages"), [(1, 7 + 7), (2, 19 + 19)])
def test_after_each_preemption_there_must_be_room_for_four_times_as_much(num_preemptions, num_kv_pages):
    """12 tokens and 16 or 64 more."""
    for size, fits in ((num_kv_pages, True), (num_kv_pages - 1, False)):
        pool = Pool(size)
        pool.run(range(12))
        assert pool.has_room(range(100, 112), num_preemptions) == fits


def test_nobody_needs_more_than_it_can_ever_use():
    for size, fits in ((6, True), (5, False)):
        pool = Pool(size)
        running = pool.run(range(10))
        running.max_new_tokens = 1  # 3 pages to its end
        request = new_request(range(100, 110))
        request.max_new_tokens, request.num_preemptions = 1, 20
        assert pool.admission.has_room(request, 0, pool.running) == fits


def test_what_a_running_request_has_not_read_yet_is_counted():
    for size, fits in ((4 + 6, True), (4 + 5, False)):
        pool = Pool(size)
        pool.run(range(4)).num_prefill_tokens = 20  # holds 1 page, comes to 6
        assert pool.has_room(range(100, 112)) == fits


@pytest.mark.parametrize(("num_kv_pages", "fits"), [(6, True), (5, False)])
def test_pages_that_others_hold_need_no_room(num_kv_pages, fits):
    pool = Pool(num_kv_pages)
    pool.run(range(12))  # 3 pages, comes to 4
    assert pool.has_room(range(13)) == fits  # 3 shared, comes to 5


@pytest.mark.parametrize(("num_kv_pages", "fits"), [(9, True), (8, False)])
def test_known_pages_that_nobody_holds_do(num_kv_pages, fits):
    pool = Pool(num_kv_pages)
    pool.pages.close(pool.run(range(12)))
    pool.running.clear()
    pool.run(range(100, 112))  # 3 pages, comes to 4
    assert pool.pages.find_prefix(new_request(range(13))) == 3
    assert pool.has_room(range(13)) == fits  # comes to 5


@pytest.mark.parametrize("prompt", [range(12), range(100, 112)])
@pytest.mark.parametrize(("num_kv_pages", "fits"), [(10, True), (9, False)])
def test_tables_that_slide_are_counted_whole_whatever_they_share_now(prompt, num_kv_pages, fits):
    """A window of 5 touches 3 pages: 4 for each of the two, and once the 2 of a chunk."""
    pool = Pool(num_kv_pages, windows=(5,))
    pool.run(range(12))
    assert pool.has_room(prompt) == fits


@pytest.mark.parametrize("prompt", [range(5), range(100, 105)])
def test_tables_that_slide_stand_beside_some_that_do_not(prompt):
    """The window is 20. Short: 1 page, comes to 2. Long: 6 pages of the window and one more. New: 3, or 2 and one that
    it shares. A chunk: 2."""
    for size in (13, 14):
        pool = Pool(size, windows=(20,))
        pool.run(range(4))
        pool.run(range(200, 240))
        needed = 2 + 7 + 2 + (2 if prompt[0] == 0 else 3)
        assert pool.has_room(prompt) == (size >= needed)


def test_alone_a_request_runs_in_whatever_there_is():
    assert Pool(3, windows=(5,)).has_room(range(500), num_preemptions=20)


def test_every_group_must_have_room():
    """Of the windowed group a table has 5 pages where the other has 512, so a pool of 920 has 9 of it beside."""
    for size, in_window, fits in ((920, 9, False), (921, 9, False), (922, 10, True)):
        pool = Pool(size, windows=(None, 5))
        assert pool.config.group_pages == (size, in_window)
        pool.run(range(12))
        assert pool.has_room(range(100, 112)) == fits


@pytest.mark.parametrize("windows", [(64,), (None, 64)])
def test_a_window_that_nothing_outgrows_changes_nothing(windows):
    """Requests with a common prefix share as much, and as many run, as without a window."""

    def batches(windows: tuple[int | None, ...]) -> list[list[tuple[str, int, int]]]:
        limits = {"max_model_len": 64, "max_num_seqs": 16, "max_chunk_tokens": 16, "page_size": SIZE, "block_q": 4}
        scheduler = Scheduler(EngineConfig(num_kv_pages=30, windows=windows, **limits))
        for i in range(20):
            prompt = [*range(24), *range(100 * i, 100 * i + 5)]
            scheduler.add(Request(str(i), prompt, SamplingParams(), frozenset(), 8 + i % 20, seed=0))
        found = []
        while scheduler.has_unfinished:
            batch = scheduler.schedule()
            scheduler.commit(batch, [1] * len(batch.rows))
            found.append([(row.request.request_id, row.start, row.num_tokens) for row in batch.rows])
        return found

    assert batches(windows) == batches((None,))
