"""The formats of the matrix taken apart: numbers that a matrix product takes, and what turns their sums into values.

INT4 is where the instructions of a weight decide whether the kernel keeps up with the memory. With the bits 0x4300
above it, q is the bfloat16 128 + q; no further instruction makes a number of it, and the 128 goes into the offset.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float16, Shaped, UInt8

from pallas_kernels.quantized_matmul.pallas_gpu.assembly import as_bfloat16, four_bits, multiply_add, numbers_from_128
from pallas_kernels.quantized_matmul.pallas_gpu.operands import Geometry, Int4Matrix, Int8Matrix, Ref, Run
from pallas_kernels.quantized_matmul.pallas_gpu.tile import Sums, Tile, load, worked_out_once
from pallas_kernels.quantized_matmul.weights import PIECE

Groups = tuple[tuple[Float16[Array, "matrix_rows"], Float16[Array, "matrix_rows"]], ...]
"""Scales and offsets of the INT4 groups of a round; of other formats none."""


def load_numbers(
    matrix: Int8Matrix | Int4Matrix | Ref, tile: Tile, index: Array, run: Run, dtype: jnp.dtype, geometry: Geometry
) -> Float[Array, "matrix_rows run"]:
    """The numbers of a run of the round ``index`` in the tile's rows of the matrix; those of INT4 plus ``_zero``."""
    if isinstance(matrix, Int4Matrix):
        # The high bits of the bytes that the run before has loaded: the compiler takes the two loads for one.
        first = index * (PIECE // 2) + run.first % (PIECE // 2)
        packed = worked_out_once(_load(matrix.values, tile, first, run.length))
        return _take_apart(packed, run.first >= PIECE // 2, dtype, geometry)
    values = matrix.values if isinstance(matrix, Int8Matrix) else matrix
    block_inputs = geometry.config.block_inputs
    end = geometry.stored_inputs if geometry.stored_inputs % block_inputs else None
    numbers = _load(values, tile, index * block_inputs + run.first, run.length, end)
    if isinstance(matrix, Int8Matrix) and dtype == jnp.bfloat16:
        return as_bfloat16(numbers, compiled=geometry.compiled)
    return numbers.astype(dtype)


def load_groups(matrix: Int8Matrix | Int4Matrix | Ref, tile: Tile, index: Array, geometry: Geometry) -> Groups:
    """The groups of the round ``index`` in the tile's rows of the matrix."""
    if not isinstance(matrix, Int4Matrix):
        return ()
    if geometry.group_size > PIECE:
        first = jax.lax.div(index, jnp.int32(geometry.group_size // PIECE))
    else:
        first = index * geometry.groups_per_round
    places = [(tile.matrix_row, first + group) for group in range(geometry.groups_per_round)]
    return tuple((load(matrix.scales.at[place], None), load(matrix.offsets.at[place], None)) for place in places)


def apply_group(
    sums: Sums,
    product: Sums,
    x_sums: Sums,
    scale: Float16[Array, "_ _"],
    offset: Float16[Array, "_ _"],
    *,
    dtype: jnp.dtype,
    compiled: bool,
) -> Sums:
    """The sums with what a group of INT4 adds to them.

    Args:
        sums: before it.
        product: of x and the numbers.
        x_sums: sums of x over the group, to go with the product.
        scale, offset: of the group, likewise.
        dtype: of x.
        compiled: see ``Geometry``.
    """
    scale = scale.astype(jnp.float32)
    offset = offset.astype(jnp.float32) - _zero(dtype) * scale
    sums = multiply_add(product, scale, sums, compiled=compiled)
    return multiply_add(x_sums, offset, sums, compiled=compiled)


def _load(
    matrix: Ref, tile: Tile, first: Array, length: int, end: int | None = None
) -> Shaped[Array, "matrix_rows columns"]:
    """Columns of the tile's rows of the matrix; 0 from ``end`` on."""
    column = first + jnp.arange(length, dtype=jnp.int32)
    shape = (len(tile.matrix_row), length)
    mask = None if end is None else jnp.broadcast_to((column < end)[None, :], shape)
    return load(matrix.at[tile.matrix_row[:, None], column[None, :]], mask)


def _take_apart(
    packed: UInt8[Array, "matrix_rows run"], high: bool, dtype: jnp.dtype, geometry: Geometry
) -> Float[Array, "matrix_rows run"]:
    """The numbers in the low or the high bits of the bytes, each plus ``_zero``."""
    if dtype == jnp.float32:
        return four_bits(packed, high=high).astype(dtype)
    return numbers_from_128(packed, high=high, compiled=geometry.compiled)


def _zero(dtype: jnp.dtype) -> int:
    """The number that q = 0 becomes."""
    return 0 if dtype == jnp.float32 else 128
