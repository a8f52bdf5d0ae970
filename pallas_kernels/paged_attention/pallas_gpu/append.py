"""The prologue for decode rows: norm and rotate the newest token, put it into its page, and start from it.

The keys of the loop end before the newest token, so no program waits for the one that writes it; each computes it for
itself, in the rounding of the cache, and attends to what the cache will hold.
"""

import jax
import jax.numpy as jnp
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array

from pallas_kernels.paged_attention.layer_cache import quantize
from pallas_kernels.paged_attention.pallas_gpu.operands import Geometry, NewTokens, Outputs, Ref
from pallas_kernels.paged_attention.pallas_gpu.tile import Tile


def append(
    new: NewTokens, page_table: Ref, outputs: Outputs, tile: Tile, geometry: Geometry, *, writes: Array
) -> tuple[Array, Array, Array]:
    """The tile's queries [rows, D], and its newest K and V [D] in float32 as the cache holds them.

    Args:
        new: the decode rows' newest tokens.
        page_table: names the page of the newest token.
        outputs: has the pages that K and V go to.
        tile, geometry: of the program.
        writes: whether this program is the one that puts them there.
    """
    kv_head = geometry.num_heads + tile.kv_head
    has_token = tile.start >= 0
    of_rows = tile.is_query[:, None] & tile.is_column[None, :]
    q = _rotated(new, new.q_norm, tile, tile.head[:, None], tile.column[None, :], of_rows, geometry)
    k = _rotated(new, new.k_norm, tile, kv_head, tile.column, has_token & tile.is_column, geometry)
    v = _head(new.qkv, tile, kv_head + geometry.num_kv_heads, tile.column, has_token & tile.is_column)
    rel = tile.start - tile.table_start
    page = plgpu.load(page_table.at[tile.row, rel // geometry.page_size], mask=has_token, other=0)
    slot = (page, rel % geometry.page_size)
    mask = writes & has_token
    k = _put(outputs, (*slot, jnp.int32(0), tile.kv_head), k, tile, mask)
    v = _put(outputs, (*slot, jnp.int32(1), tile.kv_head), v, tile, mask)
    return q.astype(new.qkv.dtype), k, v


def _head(qkv: Ref, tile: Tile, head: Array, column: Array, mask: Array) -> Array:
    """Columns of a head of the tile's token, in float32; 0 where masked."""
    return plgpu.load(qkv.at[tile.block, head, column], mask=mask, other=0).astype(jnp.float32)


def _rotated(
    new: NewTokens, norm: Ref, tile: Tile, head: Array, column: Array, mask: Array, geometry: Geometry
) -> Array:
    """Heads of the newest token after norm and rotation, in float32: [D] for one head, [rows, D] for a column of them.

    After each of the two they are rounded to the projections' dtype, as the tokens of chunks are outside the kernel: a
    token must leave the same in the cache whichever way it came there.

    Column i turns with the one half a head away. The dialect cannot put two halves together, so both are loaded for
    every column.
    """
    half = geometry.head_dim // 2
    is_first, is_column = column < half, column < geometry.head_dim
    partner = jnp.where(is_first, column + half, column - half)
    x, turned = _head(new.qkv, tile, head, column, mask), _head(new.qkv, tile, head, partner, mask)
    if norm is not None:
        inverse = jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) / geometry.head_dim + geometry.norm_eps)
        x = _rounded(x * inverse * plgpu.load(norm.at[column], mask=is_column, other=0).astype(jnp.float32), new.qkv)
        turned = turned * inverse * plgpu.load(norm.at[partner], mask=is_column, other=0).astype(jnp.float32)
        turned = _rounded(turned, new.qkv)
    angle = jnp.where(is_first, column, partner)
    cos = plgpu.load(new.cos.at[tile.block, angle], mask=is_column, other=0)
    sin = plgpu.load(new.sin.at[tile.block, angle], mask=is_column, other=0)
    return _rounded(x * cos + jnp.where(is_first, -turned, turned) * sin, new.qkv)


def _rounded(x: Array, like: Ref) -> Array:
    return x.astype(like.dtype).astype(jnp.float32)


def _put(outputs: Outputs, place: tuple[Array, ...], x: Array, tile: Tile, mask: Array) -> Array:
    """Write one head [D] to its place in the cache; returns what a reader of the cache will see, in float32."""
    if outputs.scales is None:
        stored = x.astype(outputs.pages.dtype)
        seen = stored.astype(jnp.float32)
    else:
        stored, scale = quantize(x)
        plgpu.store(outputs.scales.at[place], scale, mask=mask)
        seen = stored.astype(jnp.float32) * scale
    plgpu.store(outputs.pages.at[(*place, tile.column)], stored, mask=mask & tile.is_column)
    return seen
