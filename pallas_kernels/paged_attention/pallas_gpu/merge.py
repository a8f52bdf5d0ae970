"""Putting the shares of a tile's keys together, in one of two ways.

The share that arrives last merges them all (``merge_as_last``): no further launch, but it relies on an order between
thread blocks that nothing but a GPU can test. A kernel of its own (``merge``) relies on nothing; it is kept so that the
two can be compared on a device.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float

from pallas_kernels.paged_attention.pallas_gpu.operands import (
    Geometry,
    MergeInputs,
    MergeOutputs,
    Outputs,
    Partials,
)
from pallas_kernels.paged_attention.pallas_gpu.tile import Shares, Tile

MASKED = -3e38
"""Score of a masked key: below any other, and finite, so that a row which has seen no key gives no NaN."""

State = tuple[Array, Array, Array]
"""Of an online softmax over the rows of a tile: sum of weighted values [rows, D], largest score in powers of two
[rows], sum of weights [rows]; float32."""


def empty_state(num_rows: int, num_columns: int) -> State:
    """Before the first key."""
    stat = jnp.zeros(num_rows, jnp.float32)
    return jnp.zeros((num_rows, num_columns), jnp.float32), jnp.full_like(stat, MASKED), stat


def finish(state: State) -> Float[Array, "rows D"]:
    """The attended values; a row that saw no key is padding and gives zeros."""
    total, _, weight = state
    return total / jnp.where(weight > 0, weight, 1)[:, None]


def store_partial(partials: Partials, tile: Tile, state: State) -> None:
    """Leave the state of one share to be merged."""
    total, largest, weight = state
    place = (tile.index, tile.kv_head, tile.split, jnp.arange(len(largest), dtype=jnp.int32))
    plgpu.store(partials.values.at[_heads(place, tile)], total, mask=_kept(tile))
    plgpu.store(partials.largest.at[place], largest, mask=tile.is_row)
    plgpu.store(partials.weight.at[place], weight, mask=tile.is_row)


def merge_as_last(outputs: Outputs, tile: Tile, shares: Shares, geometry: Geometry) -> None:
    """Count this share in, and if it is the last one, merge them all and set the count back to 0.

    The barrier orders the stores of all threads before the one thread's atomic addition, which releases them to the
    GPU and acquires what the other shares released.
    """
    place = (tile.index, tile.kv_head)
    if not geometry.interpret:
        plgpu.debug_barrier()
    before = plgpu.atomic_add(outputs.arrivals, place, jnp.int32(1))

    @pl.when(before == shares.active - 1)
    def _() -> None:
        tile.store(outputs.attended, _merged(outputs.partials, tile, shares))
        outputs.arrivals[place] = jnp.int32(0)


def merge(inputs: MergeInputs, outputs: MergeOutputs, *, geometry: Geometry) -> None:
    """The kernel of its own: one program for each tile and kv head."""
    tile = Tile.of_program(inputs.blocks, geometry)
    tile.store(outputs.attended, _merged(inputs.partials, tile, Shares.of(tile, geometry)))


def _merged(partials: Partials, tile: Tile, shares: Shares) -> Float[Array, "rows D"]:
    """The attended values of all shares together. The loads are volatile: other programs wrote what they read."""
    rows = jnp.arange(len(tile.is_row), dtype=jnp.int32)

    def add(split: Array, state: State) -> State:
        total, largest, weight = state
        place = (tile.index, tile.kv_head, split, rows)
        values = plgpu.load(partials.values.at[_heads(place, tile)], mask=_kept(tile), other=0, volatile=True)
        share_largest = plgpu.load(partials.largest.at[place], mask=tile.is_row, other=MASKED, volatile=True)
        share_weight = plgpu.load(partials.weight.at[place], mask=tile.is_row, other=0, volatile=True)
        new_largest = jnp.maximum(largest, share_largest)
        decay, factor = jnp.exp2(largest - new_largest), jnp.exp2(share_largest - new_largest)
        return total * decay[:, None] + values * factor[:, None], new_largest, weight * decay + share_weight * factor

    return finish(jax.lax.fori_loop(0, shares.active, add, empty_state(len(rows), len(tile.column))))


def _heads(place: tuple[Array, ...], tile: Tile) -> tuple[Array, ...]:
    """The place of each row's values, of which ``place`` names the row."""
    *tile_place, rows = place
    return (*tile_place, rows[:, None], tile.column[None, :])


def _kept(tile: Tile) -> Array:
    """The part of a tile that is more than filling up to powers of two."""
    return tile.is_row[:, None] & tile.is_column[None, :]
