"""The formats of the matrix taken apart: numbers that a matrix product takes, and what turns their sums into values.

INT4 is read as 32-bit words, since an instruction on four bytes costs no more than on one, and INT4 is where the
instructions of a weight decide whether the kernel keeps up with the memory. A word ``b3 b2 b1 b0`` becomes the words
``00 b1 00 b0`` and ``00 b3 00 b2``, in each of which two numbers stand where two bfloat16 do. With the bits 0x4300
above it, q is the bfloat16 128 + q; no further instruction makes a number of it, and the 128 goes into the offset.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float16, Float32, Int32, Shaped

from pallas_kernels.quantized_matmul.pallas_gpu.operands import Geometry, Int4Matrix, Int8Matrix, Ref, Run
from pallas_kernels.quantized_matmul.pallas_gpu.tile import Sums, Tile, load
from pallas_kernels.quantized_matmul.weights import PIECE

_BYTES_PER_WORD = 4
_TWO_NIBBLES = 0x000F000F
_TWO_BFLOAT16_128 = 0x43004300

Groups = tuple[tuple[Float16[Array, "matrix_rows"], Float16[Array, "matrix_rows"]], ...]
"""Scales and offsets of the INT4 groups of a round; of other formats none."""


def load_numbers(
    matrix: Int8Matrix | Int4Matrix | Ref, tile: Tile, index: Array, run: Run, dtype: jnp.dtype, geometry: Geometry
) -> Float[Array, "matrix_rows run"]:
    """The numbers of a run of the round ``index`` in the tile's rows of the matrix; those of INT4 plus ``_zero``."""
    if isinstance(matrix, Int4Matrix):
        first = run.first % (PIECE // 2) // _BYTES_PER_WORD
        words = _load(
            matrix.words, tile, index * (PIECE // 2 // _BYTES_PER_WORD) + first, run.length // _BYTES_PER_WORD
        )
        # The high bits of the words that the run before has loaded: the compiler takes the two loads for one.
        return _nibbles(words if run.first < PIECE // 2 else jax.lax.shift_right_logical(words, 4), dtype)
    values = matrix.values if isinstance(matrix, Int8Matrix) else matrix
    end = geometry.stored_inputs if geometry.stored_inputs % run.length else None
    return _load(values, tile, index * run.length, run.length, end).astype(dtype)


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
    product: Sums,
    x_sums: Float32[Array, "_ _"],
    scale: Float16[Array, "_ _"],
    offset: Float16[Array, "_ _"],
    dtype: jnp.dtype,
) -> Sums:
    """What a group of INT4 adds to the result.

    Args:
        product: of x and the numbers.
        x_sums: sums of x over the group, to go with the product.
        scale, offset: of the group, likewise.
        dtype: of x.
    """
    scale = scale.astype(jnp.float32)
    offset = offset.astype(jnp.float32) - _zero(dtype) * scale
    return product * scale + x_sums * offset


def _load(
    matrix: Ref, tile: Tile, first: Array, length: int, end: int | None = None
) -> Shaped[Array, "matrix_rows columns"]:
    """Columns of the tile's rows of the matrix; 0 from ``end`` on."""
    column = first + jnp.arange(length, dtype=jnp.int32)
    shape = (len(tile.matrix_row), length)
    mask = None if end is None else jnp.broadcast_to((column < end)[None, :], shape)
    return load(matrix.at[tile.matrix_row[:, None], column[None, :]], mask)


def _nibbles(words: Int32[Array, "matrix_rows words"], dtype: jnp.dtype) -> Float[Array, "matrix_rows run"]:
    """The numbers in the low bits of the words' bytes, in order, each plus ``_zero``. The dialect stacks two arrays
    along a new last axis, and nothing else.
    """
    numbers = [_two_numbers(_spread(half), dtype) for half in (words, jax.lax.shift_right_logical(words, 16))]
    even, odd = (jnp.stack(pair, axis=-1) for pair in zip(*numbers, strict=True))
    return jnp.stack([even, odd], axis=-1).reshape(len(words), -1)


def _spread(words: Int32[Array, "matrix_rows words"]) -> Int32[Array, "matrix_rows words"]:
    """The lower two bytes 16 bits apart."""
    return (words & 0xFF) | ((words & 0xFF00) << 8)


def _two_numbers(words: Int32[Array, "matrix_rows words"], dtype: jnp.dtype) -> tuple[Array, Array]:
    """The numbers in bits 0 to 3 and in bits 16 to 19, each plus ``_zero``."""
    words = words & _TWO_NIBBLES
    if dtype == jnp.float32:
        return (words & 0xFFFF).astype(dtype), (words >> 16).astype(dtype)
    words = words | _TWO_BFLOAT16_128
    low, high = (jax.lax.bitcast_convert_type(half.astype(jnp.int16), dtype) for half in (words, words >> 16))
    return low, high


def _zero(dtype: jnp.dtype) -> int:
    """The number that q = 0 becomes."""
    return 0 if dtype == jnp.float32 else 128
