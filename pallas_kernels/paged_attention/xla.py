"""Paged attention in plain jnp: it runs anywhere, and is the CPU's implementation.

A loop over tiles of keys with a traced trip count and an online softmax: its work follows the longest row of this call,
not the width of the page table, so one program serves every context length. A gather up to the table's width would
cost as much for a short context as for the longest (measured for 64 rows, a table of 512 pages and 200 keys: 43 ms
against 4 to 6).
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from pallas_kernels.norm import rms_norm
from pallas_kernels.paged_attention.layer_cache import LayerCache, write
from pallas_kernels.rotary import rotate

_KEYS_PER_TILE = 128
"""Keys of one round of the loop: wide enough to fill a CPU's vectors, narrow enough to waste little at the end."""

_MASKED = -3e38
"""Score of a masked key: below any other, and finite, so that a tile without any key for a query gives no NaN."""


def paged_attention(
    q: Float[Array, "N Q H D"],
    cache: LayerCache,
    page_table: Int32[Array, "R P"],
    first_page: Int32[Array, "R"],
    block_row: Int32[Array, "N"],
    block_start: Int32[Array, "N"],
    block_len: Int32[Array, "N"],
    *,
    window: int | None,
    scale: float,
    into: Float[Array, "T H D"] | None,
) -> Float[Array, "T H D"]:
    """See ``api.paged_attention``, which checks the arguments."""
    page_size, _, num_kv_heads, head_dim = cache.pages.shape[1:]
    num_blocks, block_q, num_heads, _ = q.shape
    group = num_heads // num_kv_heads
    pages_per_tile = max(1, math.ceil(_KEYS_PER_TILE / page_size))
    tile = pages_per_tile * page_size

    # The keys of a block as table-relative positions: [begin, end), tiles counted from the page that holds begin.
    table_start = first_page[block_row] * page_size
    oldest = jnp.zeros_like(block_start) if window is None else jnp.maximum(block_start - (window - 1), 0)
    begin = jnp.maximum(oldest, table_start)
    end = block_start + block_len
    tile_page0 = (begin - table_start) // page_size
    num_keys = jnp.where(block_len > 0, end - table_start - tile_page0 * page_size, 0)
    num_tiles = jnp.max(-(-num_keys // tile))

    query_pos = block_start[:, None] + jnp.arange(block_q, dtype=jnp.int32)
    query_valid = jnp.arange(block_q, dtype=jnp.int32) < block_len[:, None]
    # The queries of one kv head lie together: [N, K, Q * G, D], so that each tile is one batched product.
    q_rows = (q.astype(jnp.float32) * scale).reshape(num_blocks, block_q, num_kv_heads, group, head_dim)
    q_rows = q_rows.transpose(0, 2, 1, 3, 4).reshape(num_blocks, num_kv_heads, block_q * group, head_dim)

    def attend(t: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        entries = tile_page0[:, None] + t * pages_per_tile + jnp.arange(pages_per_tile, dtype=jnp.int32)
        in_table = entries < page_table.shape[1]
        pages = jnp.where(in_table, page_table[block_row[:, None], jnp.minimum(entries, page_table.shape[1] - 1)], 0)
        key_pos = (table_start[:, None] + entries * page_size)[:, :, None] + jnp.arange(page_size, dtype=jnp.int32)
        key_pos = key_pos.reshape(num_blocks, tile)
        visible = (key_pos[:, None, :] <= query_pos[:, :, None]) & query_valid[:, :, None]
        if window is not None:
            visible &= key_pos[:, None, :] > query_pos[:, :, None] - window
        kv = _read(cache, pages).reshape(num_blocks, tile, 2, num_kv_heads, head_dim)
        # Slots that hold nothing may be NaN, and 0 x NaN is NaN: mask the values as well as the scores.
        written = (key_pos < end[:, None]) & (key_pos >= begin[:, None])
        kv = jnp.where(written[:, :, None, None, None], kv, 0)
        return _online_softmax(state, q_rows, kv[:, :, 0], kv[:, :, 1], jnp.repeat(visible, group, axis=1))

    stat = (num_blocks, num_kv_heads, block_q * group, 1)
    state = (jnp.zeros((*stat[:3], head_dim), jnp.float32), jnp.full(stat, _MASKED), jnp.zeros(stat, jnp.float32))
    total, _, weight = jax.lax.fori_loop(0, num_tiles, attend, state)
    out = total / jnp.where(weight > 0, weight, 1)  # a padded query saw no key: zero, not NaN
    out = out.reshape(num_blocks, num_kv_heads, block_q, group, head_dim).transpose(0, 2, 1, 3, 4)
    out = out.reshape(-1, num_heads, head_dim).astype(q.dtype)
    return out if into is None else into.at[len(into) - len(out) :].set(out)


def decode_attention(
    qkv: Float[Array, "T heads D"],
    cache: LayerCache,
    arrivals: Int32[Array, "rows K"],
    page_table: Int32[Array, "B P"],
    first_page: Int32[Array, "B"],
    position: Int32[Array, "B"],
    cos: Float[Array, "T half_D"],
    sin: Float[Array, "T half_D"],
    *,
    q_norm: Float[Array, "D"] | None,
    k_norm: Float[Array, "D"] | None,
    norm_eps: float,
    window: int | None,
    scale: float,
) -> tuple[Float[Array, "T H D"], LayerCache, Int32[Array, "rows K"]]:
    """See ``api.decode_attention``, which checks the arguments."""
    num_rows, num_kv_heads, page_size = len(position), cache.pages.shape[3], cache.pages.shape[1]
    num_heads = qkv.shape[1] - 2 * num_kv_heads
    q, k, v = jnp.split(qkv[:num_rows], [num_heads, num_heads + num_kv_heads], axis=1)
    q = q if q_norm is None else rms_norm(q, q_norm, norm_eps)
    k = k if k_norm is None else rms_norm(k, k_norm, norm_eps)
    q, k = (rotate(x, cos[:num_rows], sin[:num_rows]) for x in (q, k))
    row, block_len = jnp.arange(num_rows, dtype=jnp.int32), (position >= 0).astype(jnp.int32)
    position = jnp.maximum(position, 0)
    page = page_table[row, position // page_size - first_page]
    cache = write(cache, k, v, jnp.where(block_len > 0, page, 0), position % page_size)
    attended = paged_attention(
        q[:, None], cache, page_table, first_page, row, position, block_len, window=window, scale=scale, into=None
    )
    return jnp.pad(attended, ((0, len(qkv) - num_rows), (0, 0), (0, 0))), cache, arrivals


def _read(cache: LayerCache, pages: Int32[Array, "N P"]) -> Float[Array, "N P S 2 K D"]:
    """K and V of whole pages, in float32."""
    kv = cache.pages[pages].astype(jnp.float32)
    return kv if cache.scales is None else kv * cache.scales[pages].astype(jnp.float32)[..., None]


def _online_softmax(
    state: tuple[Array, Array, Array],
    q: Float[Array, "N K M D"],
    k: Float[Array, "N T K D"],
    v: Float[Array, "N T K D"],
    visible: Array,
) -> tuple[Array, Array, Array]:
    """Fold one tile of T keys into (sum of weighted values, largest score, sum of weights), each in float32.

    The recurrence is that of Milakov and Gimelshein, 'Online normalizer calculation for softmax' (2018).
    """
    total, largest, weight = state
    product = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32)
    mask = visible[:, None]
    scores = jnp.where(mask, product("nkmd,ntkd->nkmt", q, k), _MASKED)
    new_largest = jnp.maximum(largest, scores.max(-1, keepdims=True))
    weights = jnp.where(mask, jnp.exp(scores - new_largest), 0.0)
    decay = jnp.exp(largest - new_largest)
    return (
        total * decay + product("nkmt,ntkd->nkmd", weights, v),
        new_largest,
        weight * decay + weights.sum(-1, keepdims=True),
    )
