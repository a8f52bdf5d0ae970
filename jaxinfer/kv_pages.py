"""The pages of every cache group, and what each request holds of them.

A group has pages of its own, and each request a table per group. In a group with a window the table slides: pages whose
positions no later token can see are released before the next step takes pages, so a request holds a fixed number of
them. Steps that were launched before still read such a page; its next holder writes it in a later step, and the device
runs steps in order.

A full page is made known by the hash of its prefix as soon as its tokens are known and the steps that write them are
scheduled. Whoever shares it reads it in the same step at the earliest, and there each layer writes before it reads.
"""

from collections.abc import Iterable

from jaxinfer.config import EngineConfig
from jaxinfer.page_allocator import PageAllocator
from jaxinfer.page_hashes import next_hash, root_hash
from jaxinfer.request import PageTable, Request


class KVPages:
    """Hands pages to requests, group by group, and takes them back."""

    def __init__(self, config: EngineConfig) -> None:
        self._page_size = config.page_size
        self._allocators = [PageAllocator(num_pages) for num_pages in config.group_pages]
        is_paged = config.cache == "paged"
        self._windows = config.windows if is_paged else (None,) * len(config.windows)
        self._slides = any(window is not None for window in self._windows)
        self._shares_prefixes = config.prefix_cache and is_paged

    @property
    def num_free(self) -> tuple[int, ...]:
        """For each group the pages that no request holds, those that are only remembered included."""
        return tuple(allocator.num_free for allocator in self._allocators)

    @property
    def num_evicted(self) -> int:
        """Known pages of all groups whose memory was needed."""
        return sum(allocator.num_evicted for allocator in self._allocators)

    def first_page(self, position: int, group: int) -> int:
        """The first page with a key that the token at ``position``, or one behind it, sees in this group's layers."""
        window = self._windows[group]
        return 0 if window is None else max(0, position - window + 1) // self._page_size

    def slides(self, num_tokens: int, group: int) -> bool:
        """Whether pages have left the table of a request of so many tokens."""
        return self.first_page(num_tokens, group) > 0

    def num_pages(self, num_tokens: int) -> int:
        """Pages that hold the first ``num_tokens`` tokens of a sequence."""
        return -(-num_tokens // self._page_size)

    def find_prefix(self, request: Request) -> int:
        """The longest prefix of the known tokens, in pages, of which every group still has what later tokens see.

        At least one token is left to compute, since the next one is drawn from its logits.
        """
        if not self._shares_prefixes:
            return 0
        return self._longest_hit(self._hashes(request, (request.num_known_tokens - 1) // self._page_size))

    def held_prefix(self, request: Request, num_prefix_pages: int, group: int) -> list[int]:
        """Pages of one group that somebody holds and that a request with this prefix would share."""
        allocator = self._allocators[group]
        start = self.first_page(num_prefix_pages * self._page_size, group)
        pages = map(allocator.held_page, request.page_hashes[start:num_prefix_pages])
        return [page for page in pages if page is not None]

    def open(self, request: Request, num_prefix_pages: int) -> None:
        """Give an admitted request its tables, with the pages of its cached prefix in them."""
        for group, allocator in enumerate(self._allocators):
            table = PageTable(first_page=self.first_page(num_prefix_pages * self._page_size, group))
            table.pages.extend(map(allocator.share, request.page_hashes[table.first_page : num_prefix_pages]))
            request.page_tables.append(table)
        request.num_pages = request.num_registered_pages = num_prefix_pages

    def slide(self, requests: Iterable[Request]) -> None:
        """Release the pages that no token behind the scheduled ones of their request can see."""
        if self._slides:
            for request in requests:
                self._slide(request)

    def _slide(self, request: Request) -> None:
        for group, (table, allocator) in enumerate(zip(request.page_tables, self._allocators, strict=True)):
            num_left = self.first_page(request.num_scheduled_tokens, group) - table.first_page
            if num_left > 0:
                for page in table.pages[:num_left]:
                    allocator.release(page)
                del table.pages[:num_left]
                table.first_page += num_left

    def longest_end(self, request: Request) -> int:
        """How many tokens of the request its pages and all free ones hold."""
        return self._page_size * (request.num_pages + min(self.num_free))

    def extend(self, request: Request, num_tokens: int) -> None:
        """Take the pages that the request needs to hold ``num_tokens`` tokens; ``longest_end`` says whether it can.

        Raises:
            RuntimeError: it cannot.
        """
        num_new = self.num_pages(num_tokens) - request.num_pages
        if num_new > 0:
            for table, allocator in zip(request.page_tables, self._allocators, strict=True):
                table.pages.extend(allocator.allocate() for _ in range(num_new))
            request.num_pages += num_new

    def register(self, request: Request) -> None:
        """Let others share the request's pages that are full of scheduled and known tokens."""
        num_full = min(request.num_scheduled_tokens, request.num_known_tokens) // self._page_size
        if num_full <= request.num_registered_pages or not self._shares_prefixes or not request.page_tables:
            return
        hashes = self._hashes(request, num_full)
        for table, allocator in zip(request.page_tables, self._allocators, strict=True):
            for number in range(max(request.num_registered_pages, table.first_page), num_full):
                allocator.register(table.pages[number - table.first_page], hashes[number])
        request.num_registered_pages = num_full

    def close(self, request: Request) -> None:
        """Take back all that the request holds. What is known of it stays known until the memory is needed."""
        for table, allocator in zip(request.page_tables, self._allocators, strict=True):
            for page in reversed(table.pages):  # the end of a prefix is of no use once its beginning is gone
                allocator.release(page)
        request.page_tables.clear()
        request.num_pages = request.num_registered_pages = 0

    def forget(self) -> None:
        """Share none of the pages that are known now."""
        for allocator in self._allocators:
            allocator.forget()

    def _longest_hit(self, hashes: list[bytes]) -> int:
        """Of the lengths in pages for which each group knows every page that a later token sees, the longest."""
        longest, runs = 0, [0] * len(self._allocators)  # known pages in a row, up to the one looked at
        for number, key in enumerate(hashes, start=1):
            missing = False
            for group, allocator in enumerate(self._allocators):
                runs[group] = runs[group] + 1 if allocator.knows(key) else 0
                missing |= runs[group] < number - self.first_page(number * self._page_size, group)
                if self._windows[group] is None and runs[group] < number:
                    return longest
            if not missing:
                longest = number
        return longest

    def _hashes(self, request: Request, num_pages: int) -> list[bytes]:
        hashes, size = request.page_hashes, self._page_size
        while len(hashes) < num_pages:
            previous = hashes[-1] if hashes else root_hash(request.cache_identity)
            start = len(hashes) * size
            hashes.append(next_hash(previous, request.token_ids(start, start + size)))
        return hashes[:num_pages]
