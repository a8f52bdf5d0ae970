"""The allocator hands out each page to one holder at a time, and never page 0."""

import pytest

from jaxinfer.page_allocator import PageAllocator


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


def test_a_page_cannot_be_released_twice():
    allocator = PageAllocator(3)
    page = allocator.allocate()
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
