"""Who holds which page of one cache group, and which pages are known by what they contain.

A page has any number of holders: requests with equal prefixes share it. A page that nobody holds is free, and if it is
known by a key it stays findable until its memory is needed: the page that was released longest ago goes first.

Page 0 is the dummy page that padded rows write to. It belongs to nobody, is never handed out and does not count as
room.
"""

from collections import OrderedDict


class PageAllocator:
    """Hands out the pages 1 to ``num_pages``, in constant time.

    Attributes:
        num_evicted: known pages whose memory was needed, since the start.
    """

    def __init__(self, num_pages: int) -> None:
        self._blank = list(range(num_pages, 0, -1))  # a stack: the page released last is the one still warm in a cache
        self._num_holders: dict[int, int] = {}
        self._page_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # known pages that nobody holds, by the time of release
        self.num_evicted = 0

    @property
    def num_free(self) -> int:
        """Pages that nobody holds, whether they are known or not."""
        return len(self._blank) + len(self._idle)

    def allocate(self) -> int:
        """Take a page for new content and return its id; what was known of it is forgotten.

        Raises:
            RuntimeError: every page is held. The caller looks before it asks, so it has a fault.
        """
        if self._blank:
            page = self._blank.pop()
        elif self._idle:
            page, _ = self._idle.popitem(last=False)
            del self._page_of[self._key_of.pop(page)]
            self.num_evicted += 1
        else:
            raise RuntimeError(f"all {len(self._num_holders)} pages of the KV cache are held")
        self._num_holders[page] = 1
        return page

    def knows(self, key: bytes) -> bool:
        """Whether a page with this content can be shared."""
        return key in self._page_of

    def held_page(self, key: bytes) -> int | None:
        """The page with this content, if it is known and somebody holds it: to share it takes no free page."""
        page = self._page_of.get(key)
        return None if page in self._idle else page

    def share(self, key: bytes) -> int:
        """Become one more holder of the page with this content, and return its id.

        Raises:
            KeyError: no such page is known.
        """
        page = self._page_of[key]
        self._idle.pop(page, None)
        self._num_holders[page] = self._num_holders.get(page, 0) + 1
        return page

    def register(self, page: int, key: bytes) -> None:
        """Make a held page known by what it contains, which must not change any more.

        Of two held pages with one content the first stays the known one. One that nobody holds gives way: it would be
        evicted before the held one, and nothing would be known of that.

        Raises:
            ValueError: nobody holds the page.
        """
        if page not in self._num_holders:
            raise ValueError(f"page {page} cannot be registered: it is not held")
        if page in self._key_of:
            return
        earlier = self._page_of.get(key)
        if earlier is not None and earlier in self._idle:
            del self._key_of[earlier], self._idle[earlier], self._page_of[key]
            self._blank.append(earlier)
        if key not in self._page_of:
            self._page_of[key], self._key_of[page] = page, key

    def release(self, page: int) -> None:
        """Give up one hold of a page.

        Raises:
            ValueError: nobody holds this page: it was released before, or it is no page of this pool.
        """
        num_holders = self._num_holders.get(page, 0)
        if num_holders > 1:
            self._num_holders[page] = num_holders - 1
            return
        if num_holders == 0:
            raise ValueError(f"page {page} cannot be released: it is not held")
        del self._num_holders[page]
        if page in self._key_of:
            self._idle[page] = None
        else:
            self._blank.append(page)

    def forget(self) -> None:
        """No page is known any more; who holds one goes on to hold it."""
        self._blank.extend(self._idle)
        self._idle.clear()
        self._page_of.clear()
        self._key_of.clear()
