"""Paged attention from its definition, in NumPy and float64: the oracle, one query at a time and plain on purpose.

For each query it walks the positions that the query may see and looks each one up in the page table. No tiles, no
masks, no online softmax: what an implementation gets wrong there cannot be wrong here in the same way.
"""

import numpy as np


def paged_attention(
    q: np.ndarray,
    pages: np.ndarray,
    scales: np.ndarray | None,
    page_table: np.ndarray,
    first_page: np.ndarray,
    block_row: np.ndarray,
    block_start: np.ndarray,
    block_len: np.ndarray,
    *,
    window: int | None,
    scale: float,
) -> np.ndarray:
    """Arguments and result as of ``pallas_kernels.paged_attention``, the result in float64."""
    page_size = pages.shape[1]
    out = np.zeros(q.shape, np.float64)
    for n, row in enumerate(block_row):
        for i in range(block_len[n]):
            position = block_start[n] + i
            oldest = 0 if window is None else max(0, position - window + 1)
            keys_and_values = []
            for seen in range(oldest, position + 1):
                page = page_table[row, seen // page_size - first_page[row]]
                keys_and_values.append(heads_in_slot(pages, scales, page, seen % page_size))
            out[n, i] = _attend(q[n, i].astype(np.float64), np.array(keys_and_values), scale)
    return out


def heads_in_slot(pages: np.ndarray, scales: np.ndarray | None, page: int, offset: int) -> np.ndarray:
    """K and V of one slot, [2, K, D], as a reader of the cache sees them."""
    heads = pages[page, offset].astype(np.float64)
    return heads if scales is None else heads * scales[page, offset].astype(np.float64)[..., None]


def _attend(q: np.ndarray, kv: np.ndarray, scale: float) -> np.ndarray:
    """One query [H, D] over its keys and values [keys, 2, K, D]."""
    num_heads, num_kv_heads = q.shape[0], kv.shape[2]
    out = np.empty_like(q)
    for h in range(num_heads):
        k, v = np.moveaxis(kv[:, :, h // (num_heads // num_kv_heads)], 1, 0)
        scores = k @ q[h] * scale
        shares = np.exp(scores - scores.max())
        out[h] = shares @ v / shares.sum()
    return out
