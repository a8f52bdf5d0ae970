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
from pallas_kernels.quantized_matmul.pallas_gpu.tile import Tile, load


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """What a round of the loop hands to the next.

    Attributes:
        sums: of the products so far.
        squares: sums of x^2 so far; stays 0 without a norm.
        groups: scales and offsets of the coming round. They are loaded a round ahead: too narrow for the copies that
            bring the matrix, they would each time be waited for.
    """

    sums: Float32[Array, "rows matrix_rows"]
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
    groups = load_groups(inputs.matrix, tile, jnp.minimum(index + 1, geometry.num_rounds - 1), geometry)
    numbers = load_numbers(inputs.matrix, tile, index, inputs.x.dtype, geometry)
    squares, xs = state.squares, []
    for run in geometry.runs:
        x, x_squares = _load_inputs(index, run, inputs, tile, geometry)
        squares = squares + x_squares
        xs.append(x)
    return State(_add_products(state, xs, numbers, tile, geometry), squares, groups)


def _load_inputs(
    index: Array, run: Run, inputs: Inputs, tile: Tile, geometry: Geometry
) -> tuple[Float[Array, "rows run"], Float32[Array, "rows"] | float]:
    """x of a run, with a norm times its weight; and the sums of its squares, 0 without one."""
    column = index * geometry.config.block_inputs + run.first + jnp.arange(run.length, dtype=jnp.int32)
    x = tile.load_inputs(inputs.x, column, geometry)
    if inputs.norm is None:
        return x, 0.0
    is_cut = geometry.num_inputs % geometry.config.block_inputs
    norm = load(inputs.norm.at[column], column < geometry.num_inputs if is_cut else None)
    x32 = x.astype(jnp.float32)
    return (x32 * norm.astype(jnp.float32)[None, :]).astype(x.dtype), jnp.sum(x32 * x32, axis=1)


def _add_products(
    state: State,
    xs: list[Float[Array, "rows run"]],
    numbers: list[Float[Array, "matrix_rows run"]],
    tile: Tile,
    geometry: Geometry,
) -> Float32[Array, "rows matrix_rows"]:
    """The sums with the round's products added."""
    products = [tile.product(x, part) for x, part in zip(xs, numbers, strict=True)]
    if not state.groups:
        return functools.reduce(jnp.add, products, state.sums)
    sums = state.sums
    for number, (scale, offset) in enumerate(state.groups):
        runs = [i for i, run in enumerate(geometry.runs) if run.group == number]
        product = functools.reduce(jnp.add, [products[i] for i in runs])
        x_sums = functools.reduce(jnp.add, [jnp.sum(xs[i].astype(jnp.float32), axis=1) for i in runs])
        scale, offset = tile.of_outputs(scale), tile.of_outputs(offset)
        sums = sums + apply_group(product, tile.of_rows(x_sums), scale, offset, xs[0].dtype)
    return sums


def _finish(state: State, inputs: Inputs, tile: Tile, geometry: Geometry) -> Float32[Array, "rows outputs"]:
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
