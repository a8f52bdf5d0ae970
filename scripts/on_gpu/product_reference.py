"""The product by its definition: in float32 on the device, and in NumPy and float64 on the host."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Float64

from pallas_kernels.quantized_matmul import Int4Weight, Int8Weight, Weight, dequantize

_PIECE = 64
"""Neighbouring outputs whose errors are taken together: few enough that a single wrong one is seen."""


def on_device(
    x: Float[Array, "T K"],
    weight: Weight,
    *,
    norm: Array | None = None,
    norm_eps: float = 0.0,
    bias: Array | None = None,
    residual: Array | None = None,
    swiglu: bool = False,
) -> Float32[Array, "T M"]:
    """``matmul`` in float32, without anything that a GPU does faster and less exactly."""
    x = x.astype(jnp.float32)
    if norm is not None:
        x = x / jnp.sqrt(jnp.mean(x * x, axis=1, keepdims=True) + norm_eps) * norm.astype(jnp.float32)
    y = jnp.matmul(x, dequantize(weight, jnp.dtype(jnp.float32)).T, precision=jax.lax.Precision.HIGHEST)
    y = y if bias is None else y + bias.astype(jnp.float32)
    if swiglu:
        gate, up = jnp.split(y, 2, axis=1)
        y = gate / (1 + jnp.exp(-gate)) * up
    return y if residual is None else y + residual.astype(jnp.float32)


def on_host(arguments: dict[str, Any], weight: Weight) -> Float64[np.ndarray, "T M"]:
    """The same in NumPy and float64, from the arrays alone: the numbers of a packed matrix are taken apart here."""
    given = {name: np.asarray(value, np.float64) for name, value in arguments.items()}
    x = given["x"]
    if "norm" in given:
        x = x / np.sqrt((x * x).mean(1, keepdims=True) + given["norm_eps"]) * given["norm"]
    y = x @ _matrix(weight).T + given.get("bias", 0)
    if arguments["swiglu"]:
        gate, up = np.split(y, 2, axis=1)
        y = gate / (1 + np.exp(-gate)) * up
    return y + given.get("residual", 0)


def row_error(result: Float[Array, "T M"], expected: Float[Array, "T M"]) -> Float32[Array, ""]:
    """The largest error of a piece of neighbouring outputs, relative to a piece of the row's mean square.

    Infinite where a result is NaN.
    """
    difference = result.astype(jnp.float32) - expected.astype(jnp.float32)
    width = expected.shape[1]
    pieces = jnp.pad(difference, ((0, 0), (0, -width % _PIECE))).reshape(len(expected), -1, _PIECE)
    distance = jnp.sqrt(jnp.sum(pieces * pieces, axis=-1))
    scale = jnp.sqrt(jnp.mean(jnp.square(expected.astype(jnp.float32)), axis=1, keepdims=True) * min(_PIECE, width))
    error = jnp.max(distance / scale)
    return jnp.where(jnp.isnan(error), jnp.inf, error)


def _matrix(weight: Weight) -> Float64[np.ndarray, "N K"]:
    if isinstance(weight, Int8Weight):
        matrix = np.asarray(weight.values, np.float64) * np.asarray(weight.scales, np.float64)[:, None]
        return matrix[:, : weight.num_inputs]
    if not isinstance(weight, Int4Weight):
        return np.asarray(weight, np.float64)
    values = np.asarray(weight.values)
    num_columns = 2 * values.shape[1]
    column = np.arange(num_columns)
    byte = values[:, column // 128 * 64 + column % 64]
    q = np.where(column % 128 < 64, byte & 15, byte >> 4).astype(np.float64)
    group = column // (num_columns // weight.scales.shape[1])
    scales, offsets = (np.asarray(array, np.float64)[:, group] for array in (weight.scales, weight.offsets))
    return (q * scales + offsets)[:, : weight.num_inputs]
