"""Weight matrices as every product reads them: float, INT8 by output channel, or INT4 by groups of inputs.

All are ``[N, K]`` with the K inputs of an output side by side, so that a kernel loads them 16 bytes at a time. The
quantized ones are filled up to whole pieces of ``PIECE`` inputs; a kernel then never meets a piece that is cut short.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float16, Float32, Int8, Integer, UInt8

PIECE = 128
"""Inputs that a quantized matrix is filled up to a multiple of, and of which INT4 packs two halves together."""

GROUP_SIZES = (32, 64, 128)
"""Inputs of an INT4 group, beside the whole row."""

_HALF = PIECE // 2


@partial(jax.tree_util.register_dataclass, data_fields=["values", "scales"], meta_fields=["num_inputs"])
@dataclass(frozen=True, kw_only=True)
class Int8Weight:
    """w[n, k] = values[n, k] * scales[n].

    Attributes:
        values: zero from column ``num_inputs`` on.
        scales: one of each output.
        num_inputs: K, the inputs that count.
    """

    values: Int8[Array, "N padded_K"]
    scales: Float32[Array, "N"]
    num_inputs: int

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return self.values.shape[0], self.num_inputs


@partial(jax.tree_util.register_dataclass, data_fields=["values", "scales", "offsets"], meta_fields=["num_inputs"])
@dataclass(frozen=True, kw_only=True)
class Int4Weight:
    """w[n, k] = q[n, k] * scales[n, g] + offsets[n, g], with q in 0 .. 15 and g the group that k lies in.

    Byte j of a piece of 64 bytes holds two inputs of a piece of 128: number j in its low four bits and number 64 + j
    in its high ones. So a kernel that takes the bytes apart has two runs of neighbouring inputs.

    Attributes:
        values: two q in each byte; from column ``num_inputs`` on they and their groups may be anything finite.
        scales, offsets: of each output and group. Float offsets represent GGUF's Q4_1 and AWQ exactly.
        num_inputs: K, the inputs that count.
    """

    values: UInt8[Array, "N half_padded_K"]
    scales: Float16[Array, "N groups"]
    offsets: Float16[Array, "N groups"]
    num_inputs: int

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return self.values.shape[0], self.num_inputs

    @property
    def group_size(self) -> int:
        """Inputs of a group: one of ``GROUP_SIZES``, or K up to a whole piece where a row is one group."""
        return 2 * self.values.shape[1] // self.scales.shape[1]


Weight = Float[Array, "N K"] | Int8Weight | Int4Weight


def padded(num_inputs: int) -> int:
    """K up to a whole piece."""
    return -(-num_inputs // PIECE) * PIECE


def pad_inputs(x: Array, fill: int = 0) -> Array:
    """``x`` [rows, K] up to a whole piece, with ``fill``."""
    return jnp.pad(x, ((0, 0), (0, padded(x.shape[1]) - x.shape[1])), constant_values=fill)


def pack_nibbles(q: Integer[Array, "N padded_K"]) -> UInt8[Array, "N half_padded_K"]:
    """Numbers 0 .. 15 as ``Int4Weight.values`` holds them."""
    pieces = q.astype(jnp.uint8).reshape(len(q), -1, 2, _HALF)
    return (pieces[:, :, 0] | pieces[:, :, 1] << 4).reshape(len(q), -1)


def unpack_nibbles(values: UInt8[Array, "N half_padded_K"]) -> UInt8[Array, "N padded_K"]:
    """The inverse of ``pack_nibbles``. By shifts, which XLA fuses with what follows; a stack would be a kernel more."""
    pieces = values.reshape(len(values), -1, 1, _HALF)
    return (pieces >> jnp.array([[0], [4]], jnp.uint8) & 15).reshape(len(values), -1)


def take_rows(weight: Weight, rows: Integer[Array, "T"], dtype: jnp.dtype) -> Float[Array, "T K"]:
    """Some rows of the matrix that a weight stands for: the embeddings of tokens."""
    return dequantize(jax.tree.map(lambda array: array[rows], weight), dtype)


def dequantize(weight: Weight, dtype: jnp.dtype) -> Float[Array, "N K"]:
    """The matrix that a weight stands for, computed in float32 and rounded to ``dtype``."""
    match weight:
        case Int8Weight():
            matrix = weight.values.astype(jnp.float32) * weight.scales[:, None]
        case Int4Weight():
            q = unpack_nibbles(weight.values).astype(jnp.float32).reshape(*weight.scales.shape, -1)
            scales, offsets = (x.astype(jnp.float32)[:, :, None] for x in (weight.scales, weight.offsets))
            matrix = (q * scales + offsets).reshape(len(q), -1)
        case _:
            return weight.astype(dtype)
    return matrix[:, : weight.num_inputs].astype(dtype)
