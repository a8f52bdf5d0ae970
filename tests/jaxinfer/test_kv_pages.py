"""What requests hold of each cache group: shared prefixes, and tables that slide.

A page holds 4 tokens. ``Writer`` does to ``KVPages`` what the scheduler does, for one request.
"""

import pytest

from jaxinfer.config import EngineConfig
from jaxinfer.kv_pages import KVPages
from jaxinfer.request import Request
from jaxinfer.sampling_params import SamplingParams

SIZE = 4


def make_pages(windows: tuple[int | None, ...] = (None,), **limits) -> KVPages:
    small = {"max_model_len": 64, "max_chunk_tokens": 8, "page_size": SIZE, "block_q": 4, "num_kv_pages": 32}
    return KVPages(EngineConfig(**(small | limits), windows=windows))


class Writer:
    """A request that is admitted and written to the cache."""

    def __init__(self, pages: KVPages, prompt, identity: tuple[str, ...] = ()) -> None:
        self.pages = pages
        self.request = Request("r", list(prompt), SamplingParams(), frozenset(), 1, seed=0, cache_identity=identity)

    def open(self) -> int:
        """Take what is cached and return how many tokens that is."""
        num_pages = self.pages.find_prefix(self.request)
        self.pages.open(self.request, num_pages)
        self.request.num_scheduled_tokens = num_pages * SIZE
        return num_pages * SIZE

    def write(self, end: int) -> None:
        """One step that brings the request to ``end`` tokens."""
        self.pages.slide([self.request])
        self.pages.extend(self.request, end)
        self.request.num_scheduled_tokens = end
        self.pages.register(self.request)

    def write_all(self, chunk: int = 8) -> "Writer":
        self.open()
        num_tokens = self.request.num_known_tokens
        for end in range(self.request.num_scheduled_tokens + chunk, num_tokens + chunk, chunk):
            self.write(min(end, num_tokens))
        return self

    def close(self) -> None:
        self.pages.close(self.request)

    def tables(self) -> list[tuple[int, list[int]]]:
        return [(table.first_page, list(table.pages)) for table in self.request.page_tables]


def cached(pages: KVPages, prompt, identity: tuple[str, ...] = ()) -> int:
    """How many tokens of a prompt are found."""
    return pages.find_prefix(Writer(pages, prompt, identity).request) * SIZE


# Hits where every key is seen


@pytest.mark.parametrize(
    ("num_same", "num_tokens", "hit"),
    [
        (20, 20, 16),  # all of it is cached, and a token must be left to compute
        (20, 21, 20),
        (20, 17, 16),
        (20, 16, 12),
        (19, 30, 16),  # the page in which they part is no common one
        (3, 30, 0),
        (0, 30, 0),
        (20, 1, 0),
        (20, 4, 0),
        (20, 5, 4),
    ],
)
@pytest.mark.parametrize("is_running", [True, False])
def test_a_prefix_is_found_in_whole_pages_short_of_the_last_token(num_same, num_tokens, hit, is_running):
    pages = make_pages()
    first = Writer(pages, range(20)).write_all()
    if not is_running:
        first.close()
    prompt = [*range(num_same), *range(1000, 1030)][:num_tokens]
    assert cached(pages, prompt) == hit


def test_who_shares_a_prefix_holds_the_same_pages_and_only_its_own_are_new():
    pages = make_pages()
    first = Writer(pages, range(20)).write_all()
    second = Writer(pages, [*range(10), 77, 78, 79]).write_all()
    assert second.tables()[0][1][:2] == first.tables()[0][1][:2]
    assert set(second.tables()[0][1][2:]).isdisjoint(first.tables()[0][1])
    assert pages.num_free == (32 - 5 - 2,)
    first.close()
    assert pages.num_free == (32 - 4,)
    second.close()
    assert pages.num_free == (32,)


def test_a_salt_keeps_equal_prompts_apart():
    pages = make_pages()
    Writer(pages, range(20), identity=("model", "a")).write_all()
    assert cached(pages, range(20), ("model", "a")) == 16
    for identity in [(), ("model",), ("model", "b"), ("a", "model"), ("modela",)]:
        assert cached(pages, range(20), identity) == 0


def test_a_page_is_found_once_it_is_full_and_all_its_tokens_are_scheduled_and_known():
    pages = make_pages()
    writer = Writer(pages, range(9))
    writer.open()
    for end, hit in [(3, 0), (4, 4), (7, 4), (8, 8)]:
        writer.write(end)
        assert cached(pages, range(9)) == hit
    for end in (9, 10, 11, 12):
        writer.write(end)  # tokens that are drawn, and known to the device only
    drawn = [50, 51, 52]
    for token_id in drawn:
        assert cached(pages, [*range(9), *drawn, 1]) == 8
        writer.request.output_token_ids.append(token_id)
        pages.register(writer.request)
    assert cached(pages, [*range(9), *drawn, 1]) == 12


def test_a_hole_in_the_prefix_ends_the_hit():
    pages = make_pages(num_kv_pages=6)
    writer = Writer(pages, range(20)).write_all()
    first = writer.tables()[0][1][0]
    writer.close()
    other = Writer(pages, range(100, 105)).write_all()  # of 6 pages 1 is blank, so 1 of the known ones goes
    assert cached(pages, range(20)) == 16  # the last of them
    other.write(12)
    assert cached(pages, range(20)) == 12
    assert pages.num_evicted == 2
    reader = Writer(pages, range(20))
    assert reader.open() == 12
    assert reader.tables()[0][1][0] == first


def test_without_a_prefix_cache_nothing_is_found():
    for limits in ({"prefix_cache": False}, {"cache": "contiguous"}):
        pages = make_pages(**limits)
        Writer(pages, range(20)).write_all()
        assert cached(pages, range(20)) == 0


def test_after_forget_only_what_is_written_later_is_found():
    pages = make_pages()
    writer = Writer(pages, range(20)).write_all()
    pages.forget()
    assert cached(pages, range(20)) == 0
    writer.close()
    Writer(pages, range(20)).write_all()
    assert cached(pages, range(20)) == 16


# Windows


def seen_pages(position: int, end: int, window: int | None) -> tuple[int, int]:
    """First page, and number of pages, that tokens from ``position`` to ``end`` - 1 see or are written to."""
    keys = [key for token in range(position, end) for key in range(token + 1) if window is None or key > token - window]
    numbers = {key // SIZE for key in keys}
    return min(numbers), len(numbers)


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5, 7, 8, 9, 16, 63])
@pytest.mark.parametrize("chunk", [1, 3, 8])
def test_a_step_holds_just_the_pages_that_its_tokens_see(window, chunk):
    pages = make_pages((window,), prefix_cache=False)  # with a window of 1, nothing of a prefix is missing ever
    width = min(16, -(-(window + 8) // SIZE) + 1)
    writer = Writer(pages, range(64))
    writer.open()
    for start in range(0, 64, chunk):
        end = min(start + chunk, 64)
        before = dict(enumerate(writer.tables()[0][1], start=writer.tables()[0][0]))
        writer.write(end)
        first, held = writer.tables()[0]
        assert (first, len(held)) == seen_pages(start, end, window)
        assert len(held) <= width
        after = dict(enumerate(held, start=first))
        assert all(after[number] == before[number] for number in after.keys() & before.keys())
        assert pages.num_free == (32 - len(held),)
    writer.close()
    assert pages.num_free == (32,)


@pytest.mark.parametrize("window", [1, 2, 4, 5, 6, 9, 13])
def test_a_windowed_group_needs_only_what_the_next_token_sees(window):
    pages = make_pages((window,))
    Writer(pages, range(24)).write_all().close()  # every page of it is known still, held by nobody
    reader = Writer(pages, range(24))
    assert reader.open() == 20
    first, held = reader.tables()[0]
    needed = {key // SIZE for key in range(max(0, 20 - window + 1), 20)}  # what position 20 sees that is written
    assert len(held) == len(needed)
    assert first + len(held) == 5


@pytest.mark.parametrize(
    ("window", "hit_of_24", "hit_of_25"), [(5, 20, 24), (6, 12, 24), (9, 12, 24), (10, 12, 12), (30, 12, 12)]
)
def test_a_page_that_is_missing_hurts_only_who_sees_it(window, hit_of_24, hit_of_25):
    """Of the pages 0 to 5 the fourth, with the positions 12 to 15, is not known."""
    pages = make_pages((window,))
    writer = Writer(pages, range(24)).write_all()
    writer.close()
    keys = writer.request.page_hashes
    allocator = pages._allocators[0]
    allocator.forget()
    for number, key in enumerate(keys):
        if number != 3:
            allocator.register(allocator.allocate(), key)
    assert cached(pages, range(24)) == hit_of_24
    assert cached(pages, range(25)) == hit_of_25


def test_a_shared_page_stays_when_one_window_leaves_it():
    pages = make_pages((6,))
    first = Writer(pages, range(64)).write_all(chunk=4)
    second = Writer(pages, range(64))
    first.close()
    second.open()
    third = Writer(pages, range(64))
    third.open()
    assert second.tables() == third.tables()
    num_held = len(second.tables()[0][1])
    second.write(64)
    second.request.num_scheduled_tokens = 80  # all has left its window
    pages.slide([second.request])
    assert second.tables()[0][1] == []
    assert pages.num_free == (32 - num_held,)
    third.close()
    assert pages.num_free == (32,)


# Two groups


def test_two_groups_have_tables_of_their_own():
    pages = make_pages((None, 5))
    writer = Writer(pages, range(40)).write_all(chunk=4)
    full, windowed = writer.tables()
    assert (full[0], len(full[1])) == seen_pages(36, 40, None)
    assert (windowed[0], len(windowed[1])) == seen_pages(36, 40, 5)


def test_a_prefix_of_two_groups_is_as_long_as_both_have_it():
    pages = make_pages((None, 5))
    writer = Writer(pages, range(24)).write_all()
    writer.close()
    assert cached(pages, range(24)) == 20
    full, windowed = pages._allocators
    keys = writer.request.page_hashes
    windowed.forget()
    for number in (0, 1, 2):
        windowed.register(windowed.allocate(), keys[number])
    assert cached(pages, range(24)) == 12  # the token at 12 sees from 8 on
    full.forget()
    full.register(full.allocate(), keys[0])
    assert cached(pages, range(24)) == 4
    full.forget()
    full.register(full.allocate(), keys[1])  # without the first one
    assert cached(pages, range(24)) == 0


def test_the_pages_of_both_groups_come_back():
    pages = make_pages((None, 5))
    there = pages.num_free
    writers = [Writer(pages, [*range(10), *range(100 * i, 100 * i + 20)]).write_all() for i in range(1, 4)]
    for writer in writers:
        writer.close()
        assert writer.request.page_tables == []
    assert pages.num_free == there


# Room


def test_longest_end_counts_the_pages_held_and_those_that_are_free():
    pages = make_pages(num_kv_pages=5)
    writer, other = Writer(pages, range(6)).write_all(), Writer(pages, range(100, 104)).write_all()
    assert pages.longest_end(writer.request) == 4 * (2 + 2)
    other.close()
    assert pages.longest_end(writer.request) == 4 * (2 + 3)
