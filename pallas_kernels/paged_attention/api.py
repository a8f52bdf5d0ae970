"""The one entry to paged attention: checks what it is given and picks the implementation."""

from collections.abc import Callable, Mapping
from typing import Literal, get_args

from jaxtyping import Array, Float, Int32

from pallas_kernels.paged_attention import xla

Implementation = Literal["xla"]

_IMPLEMENTATIONS: Mapping[str, Callable[..., Array]] = {"xla": xla.paged_attention}


def paged_attention(
    q: Float[Array, "N Q H D"],
    kv_pages: Float[Array, "num_pages S 2 K D"],
    page_table: Int32[Array, "R P"],
    first_page: Int32[Array, "R"],
    block_row: Int32[Array, "N"],
    block_start: Int32[Array, "N"],
    block_len: Int32[Array, "N"],
    *,
    window: int | None,
    scale: float,
    implementation: Implementation | None = None,
) -> Float[Array, "N Q H D"]:
    """Causal attention of blocks of queries over the keys and values that a paged cache holds.

    A block is ``Q`` neighbouring tokens of one request: 1 for decoding, 16 or 32 for pieces of prompts. Query i of
    block n stands at position ``block_start[n] + i`` and attends to the keys at positions
    ``max(0, position - window + 1) .. position`` (itself included, hence exactly ``window`` keys once there are as
    many), whose K and V must be in the cache already.

    Args:
        q: queries, rotary embedding applied; query head h reads kv head ``h // (H / K)``.
        kv_pages: the cache of one layer, K at index 0 and V at index 1 of the third axis. What lies in slots that hold
            no token is never read into the result, NaN included.
        page_table: for each row the ids of its pages. Entry j holds the positions from
            ``(first_page[row] + j) * S``; entries past the last token are not read into the result.
        first_page: for each row how many pages of its sequence left the table at the front (0 without a window).
        block_row: for each block its row of ``page_table``.
        block_start: for each block the position of its first query.
        block_len: for each block how many queries it has, 0 to Q; the others are padding and give zeros.
        window: keys that a token attends to, or None for all.
        scale: factor of the scores, 1 / sqrt(D) as a rule.
        implementation: which one computes it; None takes the platform's (there is one so far, for all).

    Returns:
        The attended values in ``q``'s dtype; scores and sums are float32 inside.

    Raises:
        ValueError: heads that do not divide, head_dim unlike the cache's, a window below 1, an unknown implementation.
    """
    num_heads, num_kv_heads = q.shape[2], kv_pages.shape[3]
    if num_heads % num_kv_heads:
        raise ValueError(f"q has {num_heads} heads and the cache {num_kv_heads}; they must divide")
    if q.shape[3] != kv_pages.shape[4]:
        raise ValueError(f"q has head_dim {q.shape[3]} and the cache {kv_pages.shape[4]}")
    if window is not None and window < 1:
        raise ValueError(f"window is {window}; it must be at least 1, or None for no window")
    name = implementation or "xla"
    if name not in _IMPLEMENTATIONS:
        raise ValueError(f"implementation is {name!r}; known are {', '.join(get_args(Implementation))}")
    return _IMPLEMENTATIONS[name](
        q, kv_pages, page_table, first_page, block_row, block_start, block_len, window=window, scale=scale
    )
