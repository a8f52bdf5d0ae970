"""Who holds a page, which pages are known by their content, and whose memory goes first; never page 0."""

import pytest

from jaxinfer.page_allocator import PageAllocator


def known_page(allocator: PageAllocator, key: bytes) -> int:
    """A page with one holder that is known by ``key``."""
    page = allocator.allocate()
    allocator.register(page, key)
    return page


def take_all(allocator: PageAllocator) -> list[int]:
    return [allocator.allocate() for _ in range(allocator.num_free)]


# Held and free


def test_every_page_is_handed_out_once_and_the_dummy_page_never():
    allocator = PageAllocator(5)
    assert sorted(allocator.allocate() for _ in range(5)) == [1, 2, 3, 4, 5]
    assert allocator.num_free == 0


def test_an_empty_pool_says_so():
    allocator = PageAllocator(2)
    allocator.allocate(), allocator.allocate()
    with pytest.raises(RuntimeError, match="all 2 pages"):
        allocator.allocate()


def test_a_released_page_can_be_taken_again():
    allocator = PageAllocator(3)
    held = [allocator.allocate() for _ in range(3)]
    allocator.release(held[1])
    assert allocator.num_free == 1
    assert allocator.allocate() == held[1]


@pytest.mark.parametrize("is_known", [False, True])
def test_a_page_cannot_be_released_twice(is_known):
    allocator = PageAllocator(3)
    page = known_page(allocator, b"key") if is_known else allocator.allocate()
    allocator.release(page)
    with pytest.raises(ValueError, match=f"page {page} "):
        allocator.release(page)
    assert allocator.num_free == 3


@pytest.mark.parametrize("page", [-1, 0, 2, 4])  # 2 is a page of the pool that nobody holds
def test_a_page_that_was_not_handed_out_cannot_be_released(page):
    allocator = PageAllocator(3)
    assert allocator.allocate() != page
    with pytest.raises(ValueError, match=f"page {page} "):
        allocator.release(page)
    assert allocator.num_free == 2


# Shared


def test_a_known_page_is_shared_and_free_only_when_its_last_holder_is_gone():
    allocator = PageAllocator(3)
    page = known_page(allocator, b"key")
    assert [allocator.share(b"key"), allocator.share(b"key")] == [page, page]
    for _ in range(2):
        allocator.release(page)
        assert allocator.num_free == 2
        assert allocator.held_page(b"key") == page
    allocator.release(page)
    assert allocator.num_free == 3
    assert allocator.held_page(b"key") is None
    with pytest.raises(ValueError, match=f"page {page} "):
        allocator.release(page)


def test_a_page_that_nobody_holds_any_more_is_still_found_and_sharing_it_takes_it_out_of_the_free_ones():
    allocator = PageAllocator(3)
    page = known_page(allocator, b"key")
    allocator.release(page)
    assert allocator.knows(b"key")
    assert allocator.share(b"key") == page
    assert allocator.num_free == 2
    assert page not in take_all(allocator)


def test_an_unknown_key_is_neither_known_nor_held_and_cannot_be_shared():
    allocator = PageAllocator(2)
    known_page(allocator, b"other")
    assert not allocator.knows(b"key")
    assert allocator.held_page(b"key") is None
    with pytest.raises(KeyError):
        allocator.share(b"key")


def test_of_two_held_pages_with_one_content_the_first_stays_the_known_one():
    allocator = PageAllocator(3)
    first, second = known_page(allocator, b"key"), known_page(allocator, b"key")
    assert first != second
    assert allocator.share(b"key") == first
    allocator.release(second)
    assert allocator.share(b"key") == first
    assert second in take_all(allocator)  # nothing keeps it: its content is known elsewhere


def test_a_known_page_that_nobody_holds_gives_way_to_a_held_one_with_its_content():
    allocator = PageAllocator(2)
    earlier = known_page(allocator, b"key")
    allocator.release(earlier)
    later = allocator.allocate()
    allocator.register(later, b"key")
    assert allocator.share(b"key") == later
    assert allocator.num_free == 1
    assert allocator.allocate() == earlier
    assert allocator.num_evicted == 0
    assert allocator.knows(b"key")


def test_a_known_page_keeps_its_key():
    allocator = PageAllocator(2)
    page = known_page(allocator, b"key")
    allocator.register(page, b"other")
    assert allocator.share(b"key") == page
    assert not allocator.knows(b"other")


@pytest.mark.parametrize("page", [0, 1, 2])  # 1 was released, 2 never handed out
def test_a_page_that_nobody_holds_cannot_be_registered(page):
    allocator = PageAllocator(2)
    allocator.release(allocator.allocate())
    with pytest.raises(ValueError, match=f"page {page} "):
        allocator.register(page, b"key")
    assert not allocator.knows(b"key")


# Evicted


def test_unknown_pages_are_taken_before_any_known_one():
    allocator = PageAllocator(4)
    known = [known_page(allocator, key) for key in (b"a", b"b")]
    for page in known:
        allocator.release(page)
    assert set(known).isdisjoint([allocator.allocate(), allocator.allocate()])
    assert allocator.num_evicted == 0
    assert allocator.knows(b"a")
    assert allocator.knows(b"b")


def test_the_page_that_was_released_longest_ago_is_evicted_first():
    allocator = PageAllocator(3)
    pages = {key: known_page(allocator, key) for key in (b"a", b"b", b"c")}
    for key in (b"c", b"a", b"b"):
        allocator.release(pages[key])
    allocator.release(allocator.share(b"c"))  # used again: now it is the latest
    assert [allocator.allocate() for _ in range(3)] == [pages[b"a"], pages[b"b"], pages[b"c"]]
    assert allocator.num_evicted == 3


def test_an_evicted_page_is_not_found_and_can_be_known_by_other_content():
    allocator = PageAllocator(1)
    page = known_page(allocator, b"old")
    allocator.release(page)
    assert allocator.allocate() == page
    assert not allocator.knows(b"old")
    allocator.register(page, b"new")
    assert allocator.share(b"new") == page
    assert not allocator.knows(b"old")


def test_a_held_page_is_never_evicted():
    allocator = PageAllocator(2)
    held, shared = known_page(allocator, b"held"), known_page(allocator, b"shared")
    allocator.share(b"shared")
    allocator.release(shared)  # one holder is left
    with pytest.raises(RuntimeError, match="all 2 pages"):
        allocator.allocate()
    assert (allocator.share(b"held"), allocator.share(b"shared")) == (held, shared)
    assert allocator.num_evicted == 0


# Forgotten


def test_after_forget_nothing_is_found_and_holders_hold_on():
    allocator = PageAllocator(3)
    held, idle = known_page(allocator, b"held"), known_page(allocator, b"idle")
    allocator.release(idle)
    allocator.forget()
    assert not allocator.knows(b"held")
    assert not allocator.knows(b"idle")
    assert allocator.num_free == 2
    assert held not in take_all(allocator)
    allocator.release(held)
    assert allocator.allocate() == held
    assert allocator.num_evicted == 0


def test_a_page_that_was_forgotten_can_be_registered_again():
    allocator = PageAllocator(2)
    page = known_page(allocator, b"key")
    allocator.forget()
    allocator.register(page, b"key")
    assert allocator.share(b"key") == page
