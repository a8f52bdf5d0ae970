"""Who holds which page of the KV cache: a free list, and nothing about what a page contains.

Page 0 is the dummy page that padded rows write to. It belongs to nobody, is never handed out and does not count as
room.
"""


class PageAllocator:
    """Hands out the pages 1 to ``num_pages``, each to one holder at a time, in constant time."""

    def __init__(self, num_pages: int) -> None:
        self._free = list(range(num_pages, 0, -1))  # a stack: the page released last is the one still warm in a cache
        self._held: set[int] = set()

    @property
    def num_free(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def allocate(self) -> int:
        """Take a free page and return its id.

        Raises:
            RuntimeError: every page is held. Work is admitted only when its pages are sure, so the caller has a fault.
        """
        if not self._free:
            raise RuntimeError(f"all {len(self._held)} pages of the KV cache are held")
        page = self._free.pop()
        self._held.add(page)
        return page

    def release(self, page: int) -> None:
        """Give back a page that ``allocate`` returned.

        Raises:
            ValueError: nobody holds this page: it was released before, or it is no page of this pool.
        """
        if page not in self._held:
            raise ValueError(f"page {page} cannot be released: it is not held")
        self._held.remove(page)
        self._free.append(page)
