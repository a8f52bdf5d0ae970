"""The body of the kernel: a tile of x W^T, with the norm of x before it and what a layer does after it.

The norm takes one pass: its weight goes to x as it is loaded, the squares are summed beside the products, and the rows
are scaled at the end. Every program does so for all of its rows; x is small beside the matrix.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from pallas_kernels.quantized_matmul.pallas_gpu.assembly import add_squares, times
from pallas_kernels.quantized_matmul.pallas_gpu.numbers import Groups, apply_group, load_groups, load_numbers
from pallas_kernels.quantized_matmul.pallas_gpu.operands import Geometry, Inputs, Int8Matrix, Ref, Run
from pallas_kernels.quantized_matmul.pallas_gpu.tile import Sums, Tile, load, worked_out_once


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """What a round of the loop hands to the next.

    Attributes:
        sums: of the products so far.
        squares: sums of x^2 so far, of each column of a run by itself, so that no round adds up what lies in many
            threads. Without a norm nothing uses them, and the compiler leaves them out.
        groups: scales and offsets of the coming round. They are loaded a round ahead: too narrow for the copies that
            bring the matrix, they would each time be waited for.
    """

    sums: Sums
    squares: Float32[Array, "rows run"]
    groups: Groups


def multiply(inputs: Inputs, result: Ref, *, geometry: Geometry) -> None:
    """One program: a tile of the result."""
    tile = Tile.of_program(geometry)
    state = State(
        sums=tile.zeros(),
        squares=jnp.zeros((geometry.config.block_rows, geometry.runs[0].length), jnp.float32),
        groups=load_groups(inputs.matrix, tile, jnp.int32(0), geometry),
    )
    state = jax.lax.fori_loop(0, geometry.num_rounds, lambda i, s: _round(i, s, inputs, tile, geometry), state)
    tile.store_result(result, _finish(state, inputs, tile, geometry))


def _round(index: Array, state: State, inputs: Inputs, tile: Tile, geometry: Geometry) -> State:
    """Add the products of the round's inputs."""
    sums, squares, coming_groups = state.sums, state.squares, state.groups
    for number in range(max(1, len(state.groups))):
        products: list[Sums] = []
        x_sums: list[Sums] = []
        for run in (run for run in geometry.runs if run.group == number):
            x, squares = _load_inputs(index, run, squares, inputs, tile, geometry)
            numbers = load_numbers(inputs.matrix, tile, index, run, x.dtype, geometry)
            products.append(tile.product(x, numbers))
            x_sums.append(tile.input_sums(x))
        if number == len(state.groups) - 1:
            # Here, by what the compiler makes of it: earlier they cost registers, and after all else they would be
            # waited for.
            coming = jnp.minimum(index + 1, geometry.num_rounds - 1)
            coming_groups = load_groups(inputs.matrix, tile, coming, geometry)
        if state.groups:
            scale, offset = (tile.of_outputs(each) for each in state.groups[number])
            product, x_sum = (functools.reduce(jnp.add, each) for each in (products, x_sums))
            sums = apply_group(sums, product, x_sum, scale, offset, dtype=inputs.x.dtype, compiled=geometry.compiled)
        else:
            sums = functools.reduce(jnp.add, products, sums)
    return State(sums=sums, squares=squares, groups=coming_groups)


def _load_inputs(
    index: Array, run: Run, squares: Float32[Array, "rows run"], inputs: Inputs, tile: Tile, geometry: Geometry
) -> tuple[Float[Array, "rows run"], Float32[Array, "rows run"]]:
    """x of a run, with a norm times its weight; and ``squares`` with those of x added, which only a norm uses."""
    column = index * geometry.config.block_inputs + run.first + jnp.arange(run.length, dtype=jnp.int32)
    x = tile.load_inputs(inputs.x, column, geometry)
    if inputs.norm is None:
        return x, squares
    is_cut = geometry.num_inputs % geometry.config.block_inputs
    norm = load(inputs.norm.at[column], column < geometry.num_inputs if is_cut else None)
    squares = add_squares(x, squares, compiled=geometry.compiled)
    return worked_out_once(times(x, norm[None, :], compiled=geometry.compiled)), squares


def _finish(state: State, inputs: Inputs, tile: Tile, geometry: Geometry) -> Sums:
    """The tile of the result from the sums of its products."""
    y = state.sums
    if isinstance(inputs.matrix, Int8Matrix):
        y = y * tile.of_outputs(load(inputs.matrix.scales.at[tile.matrix_row], None))
    if inputs.norm is not None:
        squares = jnp.sum(state.squares, axis=1)
        y = y * tile.of_rows(jax.lax.rsqrt(squares / geometry.num_inputs + geometry.norm_eps))
    if inputs.bias is not None:
        y = y + tile.of_outputs(load(inputs.bias.at[tile.matrix_row], None).astype(jnp.float32))
    if geometry.swiglu:
        gates, ups = tile.gates_and_ups(y)
        y = jax.nn.silu(gates) * ups
    return y if inputs.residual is None else y + tile.load_result(inputs.residual)
