"""The body of the kernel: an online softmax over one share of the keys of one tile of queries.

The recurrence is that of Milakov and Gimelshein, 'Online normalizer calculation for softmax' (2018), in powers of two:
log2(e) goes into the scale, since a GPU has an instruction for 2^x. Rows, keys and columns past the real ones are
masked where they are loaded, V too: a slot that holds no token may be NaN, and 0 x NaN is NaN.
"""

import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float

from pallas_kernels.paged_attention.pallas_gpu.append import append
from pallas_kernels.paged_attention.pallas_gpu.merge import (
    MASKED,
    State,
    empty_state,
    finish,
    merge_as_last,
    store_partial,
)
from pallas_kernels.paged_attention.pallas_gpu.operands import Geometry, Inputs, NewTokens, Outputs
from pallas_kernels.paged_attention.pallas_gpu.tile import Shares, Tile


def attend(inputs: Inputs, outputs: Outputs, *, geometry: Geometry) -> None:
    """One program: its share of the keys, and what is to be done with the result."""
    tile = Tile.of_program(inputs.blocks, geometry)
    shares = Shares.of(tile, geometry)

    @pl.when(tile.split < shares.active)
    def _() -> None:
        q, state = _begin(inputs, outputs, tile, geometry)
        first = tile.split * shares.size
        last = jnp.minimum(first + shares.size, shares.num_key_tiles)
        state = jax.lax.fori_loop(first, last, lambda t, s: _attend_tile(t, s, q, inputs, tile, geometry), state)
        if outputs.partials is None:
            tile.store(outputs.attended, finish(state))
            return
        store_partial(outputs.partials, tile, state)
        if outputs.attended is not None:
            merge_as_last(outputs, tile, shares, geometry)


def _begin(inputs: Inputs, outputs: Outputs, tile: Tile, geometry: Geometry) -> tuple[Array, State]:
    """The tile's queries, and the state before its first key in the cache.

    Of decode rows the first share starts from the newest token, so that the loop has one kind of round; a round of its
    own for that token would take registers from all others.
    """
    if not isinstance(inputs.queries, NewTokens):
        mask = tile.is_query[:, None] & tile.is_column[None, :]
        place = inputs.queries.at[tile.block, tile.token[:, None], tile.head[:, None], tile.column[None, :]]
        return plgpu.load(place, mask=mask, other=0), empty_state(geometry.config.block_rows, geometry.padded_dim)
    is_first = tile.split == 0
    q, k, v = append(inputs.queries, inputs.page_table, outputs, tile, geometry, writes=is_first)
    score = jnp.sum(q.astype(jnp.float32) * k[None, :], axis=1) * _scale(geometry)
    seen = is_first & tile.is_query
    return q, (
        jnp.where(seen[:, None], v[None, :], 0.0),
        jnp.where(seen, score, MASKED),
        jnp.where(seen, 1.0, 0.0),
    )


def _attend_tile(t: Array, state: State, q: Array, inputs: Inputs, tile: Tile, geometry: Geometry) -> State:
    """Fold the t-th tile of keys into the state."""
    total, largest, weight = state
    position = tile.begin + t * geometry.config.block_keys + jnp.arange(geometry.config.block_keys, dtype=jnp.int32)
    in_cache = position < tile.end
    slot = position - tile.table_start
    page = plgpu.load(inputs.page_table.at[tile.row, slot // geometry.page_size], mask=in_cache, other=0)
    offset = slot % geometry.page_size
    k, k_scale = _load(inputs, page, offset, 0, tile, in_cache)
    scores = _product(q, k.astype(q.dtype), trans_b=True) * _scale(geometry)
    if k_scale is not None:
        scores = scores * k_scale[None, :]
    visible = tile.is_query[:, None] & in_cache[None, :] & (position[None, :] <= tile.position[:, None])
    if geometry.window is not None:
        visible &= position[None, :] > tile.position[:, None] - geometry.window
    scores = jnp.where(visible, scores, MASKED)
    new_largest = jnp.maximum(largest, jnp.max(scores, axis=1))
    weights = jnp.where(visible, jnp.exp2(scores - new_largest[:, None]), 0.0)
    decay = jnp.exp2(largest - new_largest)
    v, v_scale = _load(inputs, page, offset, 1, tile, in_cache)
    scaled = weights if v_scale is None else weights * v_scale[None, :]
    values = _product(scaled.astype(q.dtype), v.astype(q.dtype))
    return total * decay[:, None] + values, new_largest, weight * decay + jnp.sum(weights, axis=1)


def _load(
    inputs: Inputs, page: Array, offset: Array, k_or_v: int, tile: Tile, mask: Array
) -> tuple[Array, Array | None]:
    """The heads [keys, D] in slots [keys], and their scales [keys] if they have any; 0 where masked."""
    place = inputs.pages.at[page[:, None], offset[:, None], k_or_v, tile.kv_head, tile.column[None, :]]
    heads = plgpu.load(place, mask=mask[:, None] & tile.is_column[None, :], other=0)
    if inputs.scales is None:
        return heads, None
    return heads, plgpu.load(inputs.scales.at[page, offset, k_or_v, tile.kv_head], mask=mask, other=0)


def _product(a: Array, b: Array, *, trans_b: bool = False) -> Float[Array, "rows columns"]:
    """A matrix product with float32 sums; of float32 it is exact, where the default would round to TF32."""
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    return plgpu.dot(a, b, trans_b=trans_b, precision=precision)


def _scale(geometry: Geometry) -> float:
    return geometry.scale * math.log2(math.e)
