"""Inputs for tests of paged attention: a cache as an engine leaves it, and NaN wherever nothing may be read."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Row:
    """One request: its last ``num_queries`` of ``length`` tokens are this call's queries."""

    length: int
    num_queries: int = 1


@dataclass(frozen=True, kw_only=True)
class Case:
    """The arrays of one call, and how they are to be attended.

    Attributes:
        arrays: the positional arguments of ``paged_attention`` by name, as NumPy.
        window, scale: its keyword arguments.
    """

    arrays: dict[str, np.ndarray]
    window: int | None
    scale: float


def make_case(
    rows: Sequence[Row],
    *,
    page_size: int = 4,
    window: int | None = None,
    num_kv_heads: int = 2,
    group: int = 2,
    head_dim: int = 16,
    block_q: int = 1,
    dtype: np.dtype | type = np.float32,
    drop_pages: bool = False,
    num_padding_blocks: int = 1,
    table_width: int | None = None,
    num_blocks: int | None = None,
    poison: float = np.nan,
    seed: int = 0,
) -> Case:
    """A call over shuffled pages.

    Keys, values and queries are normal with mean 0; the queries are scaled so that scores have a deviation of 2: each
    query then lives on a few keys, and one key more, less or wrong shows.

    Args:
        drop_pages: whether pages that left the window of a row's first query have left its table too.
        num_padding_blocks: wholly padded blocks, put among the others.
        table_width: at least, and never less than what holds every page; entries past a row's last page name a page
            full of ``poison``.
        num_blocks: at least; to give calls of different rows one shape.
        poison: what lies in every slot that holds no token, and in every query that is padding.
    """
    rng = np.random.default_rng(seed)
    first_page = np.array([_dropped_pages(row, window, page_size) if drop_pages else 0 for row in rows], np.int32)
    num_pages = [-(-row.length // page_size) - first for row, first in zip(rows, first_page, strict=True)]
    width = max(*(1 + -(-row.length // page_size) for row in rows), table_width or 0)
    pool = rng.permutation(1 + len(rows) * width).astype(np.int32)
    kv_pages = np.full((len(pool), page_size, 2, num_kv_heads, head_dim), poison, np.float32)
    page_table = np.full((len(rows), width), pool[-1], np.int32)  # a page that nobody holds
    for i, row in enumerate(rows):
        pages = pool[i * width : i * width + num_pages[i]]
        page_table[i, : len(pages)] = pages
        for position in range(first_page[i] * page_size, row.length):
            page = pages[position // page_size - first_page[i]]
            kv_pages[page, position % page_size] = rng.standard_normal((2, num_kv_heads, head_dim))

    blocks = [block for i, row in enumerate(rows) for block in _blocks(i, row, block_q)]
    blocks += [(0, 0, 0)] * max(num_padding_blocks, (num_blocks or 0) - len(blocks))
    blocks = [blocks[i] for i in rng.permutation(len(blocks))]
    block_row, block_start, block_len = np.array(blocks, np.int32).T
    q = 2 * rng.standard_normal((len(blocks), block_q, num_kv_heads * group, head_dim))
    q[np.arange(block_q) >= block_len[:, None]] = poison
    arrays = {
        "q": q.astype(dtype),
        "kv_pages": kv_pages.astype(dtype),
        "page_table": page_table,
        "first_page": first_page,
        "block_row": block_row,
        "block_start": block_start,
        "block_len": block_len,
    }
    return Case(arrays=arrays, window=window, scale=head_dim**-0.5)


def _dropped_pages(row: Row, window: int | None, page_size: int) -> int:
    """Pages that lie wholly before the first key that the row's first query sees."""
    if window is None:
        return 0
    return max(0, row.length - row.num_queries - window + 1) // page_size


def _blocks(index: int, row: Row, block_q: int) -> list[tuple[int, int, int]]:
    """(row, first position, length) of each block of the row's queries; the last one may be short."""
    starts = range(row.length - row.num_queries, row.length, block_q)
    return [(index, start, min(block_q, row.length - start)) for start in starts]


def relative_error(out: np.ndarray, expected: np.ndarray) -> float:
    """Largest distance of an attended head from what it should be, relative to its norm; NaN counts as infinite.

    Where zeros are expected, anything else is infinitely far off.
    """
    distance = np.linalg.norm(np.asarray(out, np.float64) - expected, axis=-1)
    norm = np.linalg.norm(expected, axis=-1)
    error = np.where(distance == 0, 0.0, distance / np.where(norm > 0, norm, 1e-300))
    return float(np.nan_to_num(error, nan=np.inf).max())
