"""A paged KV cache as an engine leaves it, with poison wherever there is no token.

Both operations are tested on one: pages lie in shuffled order, some have left their row's table at the front, table
entries past a row's last page name a page of nobody, and page 0 is the engine's dummy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_MEAN_SQUARE_OF_INT8 = 127 * 128 / 3
"""Of whole numbers drawn evenly from -127 to 127."""


@dataclass(frozen=True, kw_only=True)
class RowPages:
    """One row of a page table.

    Attributes:
        num_tokens: tokens of its sequence that the cache holds, or held before their pages left the table.
        num_pages: pages that its sequence reaches over from the start, those that left included.
        first_page: how many of them left the table.
    """

    num_tokens: int
    num_pages: int
    first_page: int


def dropped_pages(first_query: int, window: int | None, page_size: int) -> int:
    """Pages that lie wholly before the first key that the query at position ``first_query`` sees."""
    return 0 if window is None else max(0, first_query + 1 - window) // page_size


def fill_pages(
    rng: np.random.Generator,
    rows: Sequence[RowPages],
    *,
    page_size: int,
    num_kv_heads: int,
    head_dim: int,
    dtype: Any,
    poison: float,
    table_width: int,
) -> dict[str, Any]:
    """Pages with random K and V of mean 0 and deviation 1, and the tables that lead to them, as NumPy.

    Args:
        dtype: of the pages. With int8 each head has a scale that is unlike its neighbours'; else ``scales`` is None.
        poison: what lies in every slot that holds no token; its scale, where the pages are int8.
        table_width: at least, and never less than what every row needs.

    Returns:
        ``pages``, ``scales``, ``page_table``, ``first_page``, as of ``LayerCache`` and ``paged_attention``.
    """
    is_int8 = dtype == np.int8
    width = max(*(row.num_pages - row.first_page for row in rows), table_width)
    pool = 1 + rng.permutation(len(rows) * width + 1).astype(np.int32)
    slots = (1 + len(pool), page_size, 2, num_kv_heads)
    pages = np.full((*slots, head_dim), 99 if is_int8 else poison, dtype)
    scales = np.full(slots, poison, np.float32) if is_int8 else None
    page_table = np.full((len(rows), width), pool[-1], np.int32)  # a page that nobody holds
    for i, row in enumerate(rows):
        own = pool[i * width :][: row.num_pages - row.first_page]
        page_table[i, : len(own)] = own
        positions = np.arange(row.first_page * page_size, row.num_tokens)
        slot = (own[positions // page_size - row.first_page], positions % page_size)
        heads = (len(positions), 2, num_kv_heads)
        if scales is None:
            pages[slot] = rng.standard_normal((*heads, head_dim))
        else:
            pages[slot] = rng.integers(-127, 128, (*heads, head_dim))
            scales[slot] = rng.uniform(0.3, 1.7, heads) / np.sqrt(_MEAN_SQUARE_OF_INT8)
    first_page = np.array([row.first_page for row in rows], np.int32)
    return {"pages": pages, "scales": scales, "page_table": page_table, "first_page": first_page}
