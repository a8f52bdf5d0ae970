"""The product by its definition, in float64: what every implementation is held to.

Nothing of the project is used: the bytes of INT4 are taken apart here, by hand, as the format says.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

_PIECE = 128


def matmul(
    x: np.ndarray,
    weight: np.ndarray | Mapping[str, Any],
    *,
    norm: np.ndarray | None = None,
    norm_eps: float = 0.0,
    bias: np.ndarray | None = None,
    residual: np.ndarray | None = None,
    swiglu: bool = False,
) -> np.ndarray:
    """y [T, M] in float64 of the arguments of ``matmul``; a quantized weight is a dictionary of its arrays."""
    matrix = dense(weight, x.shape[1])
    x = x.astype(np.float64)
    if norm is not None:
        x = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + norm_eps) * norm.astype(np.float64)
    y = x @ matrix.T
    if bias is not None:
        y = y + bias.astype(np.float64)
    if swiglu:
        half = y.shape[1] // 2
        gate, up = y[:, :half], y[:, half:]
        y = gate / (1 + np.exp(-gate)) * up
    return y if residual is None else y + residual.astype(np.float64)


def dense(weight: np.ndarray | Mapping[str, Any], num_inputs: int) -> np.ndarray:
    """The matrix [N, K] that a weight stands for."""
    if isinstance(weight, np.ndarray):
        return weight.astype(np.float64)
    scales = weight["scales"].astype(np.float64)
    if weight["values"].dtype == np.int8:
        return weight["values"][:, :num_inputs] * scales[:, None]
    numbers = nibbles(weight["values"])
    group = np.arange(numbers.shape[1]) * scales.shape[1] // numbers.shape[1]
    return (numbers * scales[:, group] + weight["offsets"].astype(np.float64)[:, group])[:, :num_inputs]


def nibbles(values: np.ndarray) -> np.ndarray:
    """The numbers 0 .. 15 [N, padded K] in bytes [N, padded K / 2]: byte j of a piece of 64 has number j of a piece of
    128 in its low four bits and number 64 + j in its high ones."""
    column = np.arange(2 * values.shape[1])
    piece, place = column // _PIECE, column % _PIECE
    byte = values[:, piece * (_PIECE // 2) + place % (_PIECE // 2)]
    return np.where(place < _PIECE // 2, byte % 16, byte // 16)
