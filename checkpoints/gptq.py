"""Matrices in 4 bits by GPTQ: numbers that keep what a matrix does to the inputs that it meets, not the matrix itself.

Frantar et al., 'GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers' (2022, arXiv
2210.17323). With H the sum of x x^T over calibration inputs x, a quantized matrix V of W has the error
tr((W - V) H (W - V)^T). The columns are rounded one after another, and what each adds to the error is made up for in
those that are still to come.

Of the variants this has the inputs in falling order of their second moments, and scales and offsets that are found
beforehand for the groups as they lie in the matrix, so that the format stays what every product reads. No library that
works on JAX arrays has float offsets: those of `qwix` are whole numbers, which costs 4-bit models a good part of their
quality.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float16, Float32, Int32, UInt8

from checkpoints.quantization import on_device
from jaxinfer.config import Quantization
from pallas_kernels.quantized_matmul import Int4Weight, dequantize, pack_nibbles, padded

_MOST = 15

_DAMPING = 0.01
"""Of the mean second moment, added to each: the paper's."""

_BLOCK = 128
"""Columns after which all others are corrected in one product, as in the paper; divides every padded row."""

_SHRINKING = tuple((0.025 * low, 0.025 * high) for low in range(11) for high in range(11))
"""Shares of a group's range that are cut off at its low and at its high end, of which the best are kept."""


def calibrate(
    name: str, matrix: Float[Array | np.ndarray, "N K"], moments: Float32[Array, "K K"], quantization: Quantization
) -> Int4Weight:
    """A matrix in 4 bits that does to its inputs nearly what ``matrix`` does.

    On inputs with these second moments no output has a larger squared error than after rounding to nearest.

    Args:
        name: for messages.
        matrix: the floats.
        moments: the sum of x x^T over calibration inputs x; see ``add_moments``.
        quantization: of 4 bits.

    Raises:
        ValueError: as ``quantization.on_device``, and moments that are not finite or that no inputs have.
    """
    nearest = on_device(name, matrix, quantization)
    if not bool(jnp.isfinite(moments).all()):
        raise ValueError(f"{name} cannot be calibrated: what goes into it on the calibration text is not finite")
    factor, order = _inverse_factor(moments)
    if not bool(jnp.isfinite(factor).all()):
        raise ValueError(
            f"{name} cannot be calibrated: the second moments of what goes into it have no Cholesky factor; "
            "more, or other, calibration text may help"
        )
    return _fit(jax.device_put(matrix), moments, factor, order, nearest)


@partial(jax.jit, donate_argnums=0)
def add_moments(moments: Float32[Array, "K K"], x: Float[Array, "T K"]) -> Float32[Array, "K K"]:
    """``moments`` with x x^T of each row added, in float32."""
    x = x.astype(jnp.float32)
    return moments + jnp.matmul(x.T, x, precision=jax.lax.Precision.HIGHEST)


def _damping(moments: Float32[Array, "K K"]) -> Float32[Array, ""]:
    mean = jnp.diagonal(moments).mean()
    return jnp.where(mean == 0, 1.0, _DAMPING * mean)


@jax.jit
def _inverse_factor(
    moments: Float32[Array, "K K"],
) -> tuple[Float32[Array, "padded_K padded_K"], Int32[Array, "padded_K"]]:
    """M, lower triangular, with M^T M the inverse of the damped moments, whose rows and columns stand in the order that
    is returned: of rising moments. What fills up the rows counts as inputs that are always 0.

    What the paper does from the first column to the last, with an upper triangular factor, goes from the last to the
    first here: so it takes one Cholesky decomposition and one triangular inverse.
    """
    missing = padded(len(moments)) - len(moments)
    filled = jnp.pad(moments, ((0, missing), (0, missing)))
    order = jnp.argsort(jnp.diagonal(filled))
    identity = jnp.eye(len(order), dtype=jnp.float32)
    damped = filled[order[:, None], order] + _damping(moments) * identity
    lower = jax.lax.linalg.cholesky(damped, symmetrize_input=False)
    return jax.lax.linalg.triangular_solve(lower, identity, left_side=True, lower=True), order


@jax.jit
def _fit(
    matrix: Float[Array, "N K"],
    moments: Float32[Array, "K K"],
    factor: Float32[Array, "padded_K padded_K"],
    order: Int32[Array, "padded_K"],
    nearest: Int4Weight,
) -> Int4Weight:
    num_inputs, group_size = matrix.shape[1], nearest.group_size
    matrix = matrix.astype(jnp.float32)
    filled = jnp.pad(matrix, ((0, 0), (0, len(order) - num_inputs)), mode="edge")
    importance = jnp.diagonal(moments) + _damping(moments)
    importance = jnp.pad(importance, (0, len(order) - num_inputs))  # what fills up the rows has none
    scales, offsets = _find_ranges(filled, importance, group_size)
    q = _choose(filled.T[order], factor, order // group_size, scales.T, offsets.T)
    q = jnp.zeros_like(q).at[order].set(q).T
    fitted = Int4Weight(values=pack_nibbles(q), scales=scales, offsets=offsets, num_inputs=num_inputs)
    return _better_rows(matrix, moments, fitted, nearest)


def _find_ranges(
    matrix: Float32[Array, "N K"], importance: Float32[Array, "K"], group_size: int
) -> tuple[Float16[Array, "N groups"], Float16[Array, "N groups"]]:
    """Scales and offsets with which rounding to nearest has the least squared error, weighted by the damped moment of
    each input: of the ranges of ``_SHRINKING`` the best for each group.
    """
    groups = matrix.reshape(len(matrix), -1, group_size)
    least, most = groups.min(axis=2), groups.max(axis=2)
    importance = importance.reshape(-1, group_size)

    def try_one(best: tuple[Array, ...], shares: Array) -> tuple[tuple[Array, ...], None]:
        low, high = least + shares[0] * (most - least), most - shares[1] * (most - least)
        scales, offsets = ((high - low) / _MOST).astype(jnp.float16), low.astype(jnp.float16)
        _, rounded = _nearest(groups, scales[:, :, None], offsets[:, :, None])
        error = ((groups - rounded) ** 2 * importance).sum(axis=2)
        found = (error, scales, offsets)
        return tuple(jnp.where(error < best[0], new, old) for new, old in zip(found, best, strict=True)), None

    start = (jnp.full(least.shape, jnp.inf), *(jnp.zeros(least.shape, jnp.float16) for _ in range(2)))
    (_, scales, offsets), _ = jax.lax.scan(try_one, start, jnp.asarray(_SHRINKING, jnp.float32))
    return scales, offsets


def _choose(
    columns: Float32[Array, "K N"],
    factor: Float32[Array, "K K"],
    group: Int32[Array, "K"],
    scales: Float16[Array, "groups N"],
    offsets: Float16[Array, "groups N"],
) -> UInt8[Array, "K N"]:
    """The numbers of each column, chosen from the last column to the first.

    Columns lie along the first axis, so that each is one run of memory.
    """

    def choose_column(i: Array, begin: Array, square: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        block, errors, q = state
        at = group[begin + i]
        numbers, rounded = _nearest(block[i], scales[at], offsets[at])
        error = (block[i] - rounded) / square[i, i]
        return block - square[i][:, None] * error, errors.at[i].set(error), q.at[i].set(numbers)

    def choose_block(b: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        columns, q = state
        begin = len(factor) - (b + 1) * _BLOCK
        rows = jax.lax.dynamic_slice_in_dim(factor, begin, _BLOCK)
        square = jax.lax.dynamic_slice_in_dim(rows, begin, _BLOCK, axis=1)
        block = jax.lax.dynamic_slice_in_dim(columns, begin, _BLOCK)
        start = (block, jnp.zeros_like(block), jnp.zeros(block.shape, jnp.uint8))
        _, errors, numbers = jax.lax.fori_loop(
            0, _BLOCK, lambda i, state: choose_column(_BLOCK - 1 - i, begin, square, state), start
        )
        # The factor is 0 for columns that are done, and those of the block are not looked at again.
        columns = columns - jnp.matmul(rows.T, errors, precision=jax.lax.Precision.HIGHEST)
        return columns, jax.lax.dynamic_update_slice_in_dim(q, numbers, begin, axis=0)

    state = (columns, jnp.zeros(columns.shape, jnp.uint8))
    return jax.lax.fori_loop(0, len(factor) // _BLOCK, choose_block, state)[1]


def _better_rows(
    matrix: Float32[Array, "N K"], moments: Float32[Array, "K K"], fitted: Int4Weight, nearest: Int4Weight
) -> Int4Weight:
    """Each row from the weight whose error e H e^T is smaller. a H a^T - b H b^T = (a - b) H (a + b)^T, as H is
    symmetric: one product, and no difference of two large numbers.
    """
    a, b = (dequantize(weight, jnp.dtype(jnp.float32)) - matrix for weight in (fitted, nearest))
    excess = (jnp.matmul(a - b, moments, precision=jax.lax.Precision.HIGHEST) * (a + b)).sum(axis=1)
    return jax.tree.map(lambda new, old: jnp.where((excess < 0)[:, None], new, old), fitted, nearest)


def _nearest(x: Array, scale: Array, offset: Array) -> tuple[UInt8[Array, "..."], Float32[Array, "..."]]:
    """The number 0 .. 15 whose meaning is nearest, and that meaning."""
    scale, offset = scale.astype(jnp.float32), offset.astype(jnp.float32)
    q = jnp.clip(jnp.round((x - offset) / jnp.where(scale == 0, 1, scale)), 0, _MOST)
    return q.astype(jnp.uint8), q * scale + offset
