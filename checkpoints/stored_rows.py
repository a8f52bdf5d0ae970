"""Matrices that a file holds quantized, on the host and as the products' formats have them, before they are packed.

A reader fills these with what its format says, whatever way that packs its numbers; the loader joins the parts of a
weight row by row; ``checkpoints.quantization`` puts them on the device. All is NumPy, so that nothing here needs jax.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from jaxtyping import Float16, Float32, Int8, UInt8

from jaxinfer.config import Quantization


@dataclass(frozen=True, kw_only=True)
class Int8Rows:
    """w[n, k] = values[n, k] * scales[n]."""

    values: Int8[np.ndarray, "N K"]
    scales: Float32[np.ndarray, "N"]

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, K)."""
        return self.values.shape

    @cached_property
    def quantization(self) -> Quantization:
        """The format."""
        return Quantization(bits=8)

    def dequantized(self) -> Float32[np.ndarray, "N K"]:
        """The numbers that are meant."""
        return self.values * self.scales[:, None]

    def columns(self) -> tuple[np.ndarray, ...]:
        """Arrays [N, ...] of which row n describes row n of the matrix."""
        return self.values, self.scales[:, None]

    def with_columns(self, values: np.ndarray, scales: np.ndarray) -> Self:
        """The matrix of other rows; the inverse of ``columns``."""
        return type(self)(values=values, scales=scales[:, 0])


@dataclass(frozen=True, kw_only=True)
class Int4Rows:
    """w[n, k] = values[n, k] * scales[n, g] + offsets[n, g], with g = k // group_size.

    Attributes:
        values: 0 .. 15, one in each byte.
        scales, offsets: of each row and group; the last group of a row may be cut short.
        group_size: 32, 64 or 128 inputs, or None for the whole row.
    """

    values: UInt8[np.ndarray, "N K"]
    scales: Float16[np.ndarray, "N groups"]
    offsets: Float16[np.ndarray, "N groups"]
    group_size: int | None

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, K)."""
        return self.values.shape

    @cached_property
    def quantization(self) -> Quantization:
        """The format."""
        return Quantization(bits=4, group_size=self.group_size)

    def dequantized(self) -> Float32[np.ndarray, "N K"]:
        """The numbers that are meant."""
        num_inputs = self.values.shape[1]
        scales, offsets = (
            np.repeat(array.astype(np.float32), self.group_size or num_inputs, axis=1)[:, :num_inputs]
            for array in (self.scales, self.offsets)
        )
        return self.values * scales + offsets

    def columns(self) -> tuple[np.ndarray, ...]:
        """Arrays [N, ...] of which row n describes row n of the matrix."""
        return self.values, self.scales, self.offsets

    def with_columns(self, values: np.ndarray, scales: np.ndarray, offsets: np.ndarray) -> Self:
        """The matrix of other rows; the inverse of ``columns``."""
        return type(self)(values=values, scales=scales, offsets=offsets, group_size=self.group_size)


StoredRows = Int8Rows | Int4Rows
