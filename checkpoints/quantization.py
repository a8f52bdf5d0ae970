"""Matrices in fewer bits, by rounding to nearest: no data is needed, and nothing is learnt.

It runs on the device, matrix by matrix, so a model that fits there only when it is quantized can be loaded.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from checkpoints.stored_rows import Int4Rows, Int8Rows, StoredRows
from jaxinfer.config import ModelConfig, Quantization
from jaxinfer.weights import Formats, weight_shapes
from pallas_kernels.quantized_matmul import Int4Weight, Int8Weight, Weight, pack_nibbles, pad_inputs, padded

_INT8_MAX = 127
"""The range is symmetric: -128 is not used."""

_INT4_MAX = 15

_LEAST_INT4, _MOST_INT4 = 2.0**-14, 32000.0
"""Largest numbers of a matrix that INT4 takes: below, scales have too few digits of float16; above, the range of a
group may have none.
"""


def on_device(
    name: str, weight: Weight | Array | np.ndarray | StoredRows, quantization: Quantization | None
) -> Weight | Array:
    """The weight ``name`` as a model holds it on the device.

    Args:
        name: for messages.
        weight: floats, or what is quantized already, which then is in the wanted format.
        quantization: what floats are rounded to; None: they stay as they are.

    Raises:
        ValueError: the matrix holds a NaN or an infinity, or numbers that float16, which the scales of INT4 are, has
            not or has with a digit or two only.
    """
    match weight:
        case Int8Rows() | Int4Rows():
            return packed(weight)
        case Int8Weight() | Int4Weight():
            return weight
    matrix = jax.device_put(weight)
    if quantization is None:
        return matrix
    # Of the numbers themselves: a maximum of XLA on a CPU passes over a NaN.
    largest = float(jnp.max(jnp.where(jnp.isfinite(matrix), jnp.abs(matrix), jnp.inf)))
    if not np.isfinite(largest):
        raise ValueError(f"{name} cannot be quantized: some of its numbers are not finite")
    if quantization.bits == 4 and not (largest == 0 or _LEAST_INT4 <= largest <= _MOST_INT4):
        raise ValueError(
            f"{name} cannot be quantized to 4 bits: its largest number is {largest:g}, and scales and offsets in "
            f"float16 need one in [{_LEAST_INT4:g}, {_MOST_INT4:g}]"
        )
    return quantize(matrix, quantization)


@partial(jax.jit, static_argnums=1)
def quantize(matrix: Float[Array, "N K"], quantization: Quantization) -> Int8Weight | Int4Weight:
    """A matrix rounded to nearest: INT8 with the scale max |w| / 127 of each row, INT4 with (max - min) / 15 and the
    offset min of each group.
    """
    if quantization.bits == 8:
        return _to_int8(matrix.astype(jnp.float32))
    return _to_int4(matrix.astype(jnp.float32), quantization.group_size or padded(matrix.shape[1]))


def packed(rows: StoredRows) -> Int8Weight | Int4Weight:
    """Rows of a file as the products read them, on the device."""
    num_inputs = rows.shape[1]
    if isinstance(rows, Int8Rows):
        scales = jax.device_put(rows.scales)
        return Int8Weight(values=pad_inputs(jax.device_put(rows.values)), scales=scales, num_inputs=num_inputs)
    num_groups = padded(num_inputs) // (rows.group_size or padded(num_inputs))
    missing = ((0, 0), (0, num_groups - rows.scales.shape[1]))
    scales, offsets = (jax.device_put(np.pad(array, missing)) for array in (rows.scales, rows.offsets))
    values = pack_nibbles(pad_inputs(jax.device_put(rows.values)))
    return Int4Weight(values=values, scales=scales, offsets=offsets, num_inputs=num_inputs)


def abstract_weights(config: ModelConfig, dtype: np.dtype, formats: Formats) -> dict[str, Any]:
    """Every weight of a model as the device will hold it, shapes alone: a pytree of ``jax.ShapeDtypeStruct``."""
    weights: dict[str, Any] = {}
    for name, shape in weight_shapes(config).items():
        weights[name] = jax.ShapeDtypeStruct(shape, dtype)
        if name in formats:
            weights[name] = jax.eval_shape(partial(quantize, quantization=formats[name]), weights[name])
    return weights


def num_bytes(weights: Any) -> int:
    """Bytes of all arrays of a pytree, or of the shapes that stand for them."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(weights))


def _to_int8(matrix: Float[Array, "N K"]) -> Int8Weight:
    scales = jnp.max(jnp.abs(matrix), axis=1) / _INT8_MAX
    values = jnp.round(matrix / _divisor(scales)[:, None]).astype(jnp.int8)
    return Int8Weight(values=pad_inputs(values), scales=scales, num_inputs=matrix.shape[1])


def _to_int4(matrix: Float[Array, "N K"], group_size: int) -> Int4Weight:
    """The last group is filled up with the row's last number, which does not widen its range. Scale and offset are
    rounded first, so that the numbers are the nearest ones of what will be multiplied.
    """
    num_outputs, num_inputs = matrix.shape
    filled = jnp.pad(matrix, ((0, 0), (0, padded(num_inputs) - num_inputs)), mode="edge")
    groups = filled.reshape(num_outputs, -1, group_size)
    least, most = groups.min(axis=2), groups.max(axis=2)
    scales, offsets = ((most - least) / _INT4_MAX).astype(jnp.float16), least.astype(jnp.float16)
    steps = (groups - offsets.astype(jnp.float32)[:, :, None]) / _divisor(scales.astype(jnp.float32))[:, :, None]
    q = jnp.clip(jnp.round(steps), 0, _INT4_MAX).reshape(num_outputs, -1)
    return Int4Weight(values=pack_nibbles(q.astype(jnp.uint8)), scales=scales, offsets=offsets, num_inputs=num_inputs)


def _divisor(scales: Float[Array, "*groups"]) -> Float[Array, "*groups"]:
    """A scale of 0 stands for numbers that are all alike; then anything will do."""
    return jnp.where(scales == 0, 1, scales)
