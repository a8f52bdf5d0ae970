"""Inputs for tests of ``paged_attention``: blocks of queries over a filled cache."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.pallas_kernels.paged_attention.paged_rows import RowPages, dropped_pages, fill_pages


@dataclass(frozen=True, kw_only=True)
class Row:
    """One request: its last ``num_queries`` of ``length`` tokens are this call's queries."""

    length: int
    num_queries: int = 1


@dataclass(frozen=True, kw_only=True)
class Case:
    """The arrays of one call, and how they are to be attended.

    Attributes:
        arrays: the arguments of the oracle by name, as NumPy; ``scales`` is None without int8 pages.
        window, scale: its other arguments.
    """

    arrays: dict[str, Any]
    window: int | None
    scale: float

    def with_arrays(self, **arrays: np.ndarray) -> "Case":
        """The case with some arrays replaced."""
        return replace(self, arrays=self.arrays | arrays)


def make_case(
    rows: Sequence[Row],
    *,
    page_size: int = 4,
    window: int | None = None,
    num_kv_heads: int = 2,
    group: int = 2,
    head_dim: int = 16,
    block_q: int = 1,
    dtype: Any = np.float32,
    kv_dtype: Any = None,
    drop_pages: bool = False,
    num_padding_blocks: int = 1,
    table_width: int = 0,
    num_blocks: int = 0,
    poison: float = np.nan,
    seed: int = 0,
) -> Case:
    """A call over shuffled pages.

    The queries are normal with mean 0, scaled so that scores have a deviation of 2: each query then lives on a few
    keys, and one key more, less or wrong shows.

    Args:
        kv_dtype: of the pages; None means ``dtype``.
        drop_pages: whether pages that left the window of a row's first query have left its table too.
        num_padding_blocks: wholly padded blocks, put among the others.
        table_width: at least; one more than any row needs, if that is more.
        num_blocks: at least; to give calls of different rows one shape.
        poison: what lies in every slot that holds no token, and in every query that is padding.
    """
    rng = np.random.default_rng(seed)
    row_pages = [_row_pages(row, page_size, window if drop_pages else None) for row in rows]
    cache = fill_pages(
        rng,
        row_pages,
        page_size=page_size,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        dtype=dtype if kv_dtype is None else kv_dtype,
        poison=poison,
        table_width=max(*(1 + row.num_pages for row in row_pages), table_width),
    )
    blocks = [block for i, row in enumerate(rows) for block in _blocks(i, row, block_q)]
    blocks += [(0, 0, 0)] * max(num_padding_blocks, num_blocks - len(blocks))
    blocks = [blocks[i] for i in rng.permutation(len(blocks))]
    block_row, block_start, block_len = np.array(blocks, np.int32).T
    q = 2 * rng.standard_normal((len(blocks), block_q, num_kv_heads * group, head_dim))
    q[np.arange(block_q) >= block_len[:, None]] = poison
    places = {"block_row": block_row, "block_start": block_start, "block_len": block_len}
    return Case(arrays={"q": q.astype(dtype), **cache, **places}, window=window, scale=head_dim**-0.5)


def _row_pages(row: Row, page_size: int, window: int | None) -> RowPages:
    first_page = dropped_pages(row.length - row.num_queries, window, page_size)
    return RowPages(num_tokens=row.length, num_pages=-(-row.length // page_size), first_page=first_page)


def _blocks(index: int, row: Row, block_q: int) -> list[tuple[int, int, int]]:
    """(row, first position, length) of each block of the row's queries; the last one may be short."""
    starts = range(row.length - row.num_queries, row.length, block_q)
    return [(index, start, min(block_q, row.length - start)) for start in starts]
