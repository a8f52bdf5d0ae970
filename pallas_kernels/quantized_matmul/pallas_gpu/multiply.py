"""The body of the kernel: a tile of x W^T, with the norm of x before it and what a layer does after it.

The norm takes one pass: its weight goes to x as it is loaded, the squares are summed beside the products, and the rows
are scaled at the end. Every program does so for all of its rows; x is small beside the matrix.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from pallas_kernels.quantized_matmul.pallas_gpu.numbers import Groups, apply_group, load_groups, load_numbers
from pallas_kernels.quantized_matmul.pallas_gpu.operands import Geometry, Inputs, Int8Matrix, Ref, Run
from pallas_kernels.quantized_matmul.pallas_gpu.tile import Sums, Tile, load


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """What a round of the loop hands to the next.

    Attributes:
        sums: of the products so far.
        squares: sums of x^2 so far. Without a norm nothing uses them, and the compiler leaves them out.
        groups: scales and offsets of the coming round. They are loaded a round ahead: too narrow for the copies that
            bring the matrix, they would each time be waited for.
    """

    sums: Sums
    squares: Float32[Array, "rows"]
    groups: Groups


def multiply(inputs: Inputs, result: Ref, *, geometry: Geometry) -> None:
    """One program: a tile of the result."""
    tile = Tile.of_program(geometry)
    state = State(
        sums=tile.zeros(),
        squares=jnp.zeros(geometry.config.block_rows, jnp.float32),
        groups=load_groups(inputs.matrix, tile, jnp.int32(0), geometry),
    )
    state = jax.lax.fori_loop(0, geometry.num_rounds, lambda i, s: _round(i, s, inputs, tile, geometry), state)
    tile.store_result(result, _finish(state, inputs, tile, geometry))


def _round(index: Array, state: State, inputs: Inputs, tile: Tile, geometry: Geometry) -> State:
    """Add the products of the round's inputs."""
    sums, squares, coming_groups = state.sums, [], state.groups
    for number in range(max(1, len(state.groups))):
        products, x_sums = [], []
        for run in (run for run in geometry.runs if run.group == number):
            x, x_squares = _load_inputs(index, run, inputs, tile, geometry)
            numbers = load_numbers(inputs.matrix, tile, index, run, x.dtype, geometry)
            products.append(tile.product(x, numbers))
            x_sums.append(jnp.sum(x.astype(jnp.float32), axis=1))
            squares.append(x_squares)
        product = functools.reduce(jnp.add, products)
        if state.groups:
            scale, offset = (tile.of_outputs(each) for each in state.groups[number])
            x_sum = tile.of_rows(functools.reduce(jnp.add, x_sums))
            product = apply_group(product, x_sum, scale, offset, inputs.x.dtype)
        sums = sums + product
        if number == max(0, len(state.groups) - 2):
            # Here, by what the compiler makes of it: earlier they cost registers, after the last product they
            # are waited for.
            coming = jnp.minimum(index + 1, geometry.num_rounds - 1)
            coming_groups = load_groups(inputs.matrix, tile, coming, geometry)
    return State(
        sums=sums,
        squares=state.squares + jnp.sum(functools.reduce(jnp.add, squares), axis=1),
        groups=coming_groups,
    )


def _load_inputs(
    index: Array, run: Run, inputs: Inputs, tile: Tile, geometry: Geometry
) -> tuple[Float[Array, "rows run"], Float32[Array, "rows run"]]:
    """x of a run, with a norm times its weight; and the squares of x, which only a norm uses."""
    column = index * geometry.config.block_inputs + run.first + jnp.arange(run.length, dtype=jnp.int32)
    x = tile.load_inputs(inputs.x, column, geometry)
    x32 = x.astype(jnp.float32)
    if inputs.norm is not None:
        is_cut = geometry.num_inputs % geometry.config.block_inputs
        norm = load(inputs.norm.at[column], column < geometry.num_inputs if is_cut else None)
        x = (x32 * norm.astype(jnp.float32)[None, :]).astype(x.dtype)
    return x, x32 * x32


def _finish(state: State, inputs: Inputs, tile: Tile, geometry: Geometry) -> Sums:
    """The tile of the result from the sums of its products."""
    y = state.sums
    if isinstance(inputs.matrix, Int8Matrix):
        y = y * tile.of_outputs(load(inputs.matrix.scales.at[tile.matrix_row], None))
    if inputs.norm is not None:
        y = y * tile.of_rows(jax.lax.rsqrt(state.squares / geometry.num_inputs + geometry.norm_eps))
    if inputs.bias is not None:
        y = y + tile.of_outputs(load(inputs.bias.at[tile.matrix_row], None).astype(jnp.float32))
    if geometry.swiglu:
        gates, others = tile.gates_and_others(y)
        y = jax.nn.silu(gates) * others
    return y if inputs.residual is None else y + tile.load_result(inputs.residual)
