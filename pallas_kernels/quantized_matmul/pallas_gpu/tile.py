"""The part of the result that one program computes."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Bool, Float, Float32, Int32, Shaped

from pallas_kernels.quantized_matmul.pallas_gpu.operands import Geometry, Ref

Sums = Float32[Array, "_ _"]
"""A tile of the result, or of products with all rows of the matrix that it is made of: [rows, outputs], or the other
way round where a program holds it so, see ``Geometry.outputs_first``."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A tile of rows and outputs.

    Attributes:
        row, is_row: rows of x, up to a power of two.
        output, is_output: columns of the result, likewise.
        matrix_row: rows of the matrix that the outputs are made of: with SwiGLU gate and other by turns. Past the last
            output they are its rows again, so that no load needs a mask for them.
        outputs_first: whether ``Sums`` are [outputs, rows].
    """

    row: Int32[Array, "rows"]
    is_row: Bool[Array, "rows"]
    output: Int32[Array, "outputs"]
    is_output: Bool[Array, "outputs"]
    matrix_row: Int32[Array, "matrix_rows"]
    outputs_first: bool

    @staticmethod
    def of_program(geometry: Geometry) -> "Tile":
        """The tile of the running program."""
        row = _places(0, geometry.config.block_rows)
        output = _places(1, geometry.config.block_outputs)
        return Tile(
            row=row,
            is_row=row < geometry.num_rows,
            output=output,
            is_output=output < geometry.num_outputs,
            matrix_row=_matrix_rows(geometry),
            outputs_first=geometry.outputs_first,
        )

    def zeros(self) -> Sums:
        """Sums of products, before the first."""
        rows, outputs = len(self.row), len(self.matrix_row)
        return jnp.zeros((outputs, rows) if self.outputs_first else (rows, outputs), jnp.float32)

    def of_rows(self, values: Shaped[Array, "rows"]) -> Shaped[Array, "_ _"]:
        """One value of each row, to go with a tile."""
        return values[None, :] if self.outputs_first else values[:, None]

    def of_outputs(self, values: Shaped[Array, "outputs"]) -> Shaped[Array, "_ _"]:
        """One value of each output, to go with a tile."""
        return values[:, None] if self.outputs_first else values[None, :]

    def product(self, x: Float[Array, "rows run"], numbers: Float[Array, "matrix_rows run"]) -> Sums:
        """x numbers^T with float32 sums; of float32 it is exact, where the default would round to TF32."""
        precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
        operands = (numbers, x) if self.outputs_first else (x, numbers)
        return plgpu.dot(*operands, trans_b=True, precision=precision)

    def input_sums(self, x: Float[Array, "rows run"]) -> Sums:
        """Sums of x over the run, to go with a tile: its product with ones. In place of reductions, this takes no
        exchange between threads, and brings each sum to where it is needed.
        """
        return self.product(x, jnp.ones((len(self.matrix_row), x.shape[1]), x.dtype))

    def gates_and_ups(self, y: Sums) -> tuple[Sums, Sums]:
        """The two that each output is made of with SwiGLU. The dialect takes no slices, so each is a sum with zeros."""
        rows, outputs = len(self.row), len(self.output)
        pairs = y.reshape((outputs, 2, rows) if self.outputs_first else (rows, outputs, 2))
        axis = 1 if self.outputs_first else 2
        is_gate = jax.lax.broadcasted_iota(jnp.int32, pairs.shape, axis) == 0
        return jnp.sum(jnp.where(is_gate, pairs, 0), axis=axis), jnp.sum(jnp.where(is_gate, 0, pairs), axis=axis)

    def load_inputs(self, x: Ref, column: Int32[Array, "run"], geometry: Geometry) -> Float[Array, "rows run"]:
        """These inputs of the tile's rows; 0 past the last row and the last input."""
        mask = None
        if geometry.num_rows % geometry.config.block_rows:
            mask = jnp.broadcast_to(self.is_row[:, None], (len(self.row), len(column)))
        if geometry.num_inputs % geometry.config.block_inputs:
            is_input = jnp.broadcast_to((column < geometry.num_inputs)[None, :], (len(self.row), len(column)))
            mask = is_input if mask is None else mask & is_input
        return load(x.at[self.row[:, None], column[None, :]], mask)

    def load_result(self, ref: Ref) -> Sums:
        """The tile of an array like the result, in float32."""
        return load(self._place(ref), self._mask()).astype(jnp.float32)

    def store_result(self, ref: Ref, values: Sums) -> None:
        """Write the tile."""
        plgpu.store(self._place(ref), values.astype(ref.dtype), mask=self._mask())

    def _place(self, ref: Ref) -> Ref:
        return ref.at[self.of_rows(self.row), self.of_outputs(self.output)]

    def _mask(self) -> Bool[Array, "_ _"]:
        return self.of_rows(self.is_row) & self.of_outputs(self.is_output)


def load(place: Ref, mask: Array | None) -> jax.Array:
    """What lies there; 0 where masked."""
    return plgpu.load(place, mask=mask, other=None if mask is None else 0)


def worked_out_once(values: Shaped[Array, "m n"]) -> Shaped[Array, "m n"]:
    """The same, worked out once for a program: of two that are even the larger.

    What leads from a load to the operand of a product, the compiler would do in the operand's place: in each warp that
    has the operand, however many have the same. It does not so move a reduction, and makes no instruction of this one.
    """
    return jnp.max(jnp.stack([values, values], axis=-1), axis=-1)


def _matrix_rows(geometry: Geometry) -> Int32[Array, "matrix_rows"]:
    per_output = 2 if geometry.swiglu else 1
    place = _places(1, geometry.config.block_outputs * per_output)
    output = place // per_output
    if geometry.num_outputs % geometry.config.block_outputs:
        output = jnp.minimum(output, geometry.num_outputs - 1)
    return output + place % per_output * geometry.num_outputs


def _places(axis: int, size: int) -> Int32[Array, "size"]:
    return pl.program_id(axis) * size + jnp.arange(size, dtype=jnp.int32)
