"""A quantized matrix as all three formats have it, however they pack it: w = (number - zero point) * scale.

Here it is decided whether a product reads it as it stands. Then it is the products' w = number * scale + offset, with
the offset -zero * scale in float16. That product is exact for zero points that are powers of two, as 8 of symmetric 4
bits is. Others round it, by 2^-11 of itself at most, which for zero points up to 15 is less than 0.74 % of a scale, the
distance between two numbers of the matrix. Such a matrix is kept quantized nevertheless.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Int32, UInt8

from checkpoints.packed.config import told_groups
from checkpoints.packed.parts import Parts
from checkpoints.stored_rows import Int4Rows, Int8Rows, StoredRows
from checkpoints.tensor_source import TensorInfo, row_blocks
from jaxinfer.config import Quantization

_MIDDLE = 128
"""The zero point of symmetric 8 bits."""

_GROUP_SIZES = (128, 64, 32)
"""What the products read, the largest first: it has the fewest scales."""


@dataclass(frozen=True, kw_only=True)
class PackedMatrix:
    """One matrix [N, K] of a file, not read yet.

    Attributes:
        parts: the tensors it is made of.
        method: the format's name.
        shape: (N, K).
        bits: 4 or 8.
        group_size: inputs that share a scale; None: the whole row.
        group_of_input: int32 [K], the group of each input, where inputs are not grouped in their order.
        scale_dtype: the file's name of the scales' type.
        read_numbers: uint8 [N, K].
        read_zeros: whole numbers [N, G].
        read_scales: floats of any precision [N, G].
    """

    parts: Parts
    method: str
    shape: tuple[int, int]
    bits: int
    group_size: int | None
    group_of_input: Int32[np.ndarray, "K"] | None
    scale_dtype: str
    read_numbers: Callable[[], UInt8[np.ndarray, "N K"]]
    read_zeros: Callable[[], np.ndarray]
    read_scales: Callable[[], np.ndarray]

    @cached_property
    def quantization(self) -> Quantization | None:
        """The products' format that the matrix is in; None: none.

        Reads zero points of 8 bits, and scales that are no float16 in the file.
        """
        if self.group_of_input is not None:
            return None
        if self.bits == 8:
            is_int8 = self.group_size is None and bool((self.read_zeros() == _MIDDLE).all())
            return Quantization(bits=8) if is_int8 else None
        divisors = [size for size in _GROUP_SIZES if self.group_size is not None and self.group_size % size == 0]
        if (self.group_size is not None and not divisors) or not self._has_float16_scales():
            return None
        return Quantization(bits=4, group_size=divisors[0] if divisors else None)

    @property
    def info(self) -> TensorInfo:
        """How the file declares it, as one tensor."""
        order = "" if self.group_of_input is None else " out of order"
        dtype = f"{self.method} INT{self.bits} {told_groups(self.group_size)}{order}, scales {self.scale_dtype}"
        return TensorInfo(shape=self.shape, dtype=dtype, readable=True, quantization=self.quantization)

    def floats(self) -> Float32[np.ndarray, "N K"]:
        """The numbers that are meant.

        Raises:
            ValueError: the file cannot be read, or a scale is not finite.
        """
        values = np.empty(self.shape, np.float32)
        for rows, block in zip(row_blocks(self.shape[0]), self.blocks(), strict=True):
            values[rows] = block
        return values

    def blocks(self) -> Iterator[Float32[np.ndarray, "rows K"]]:
        """Some rows of ``floats`` after another, by ``row_blocks``: zeros and scales of each number are as large as it.

        Raises:
            ValueError: as ``floats``.
        """
        numbers, zeros, scales = self.read_numbers(), self.read_zeros().astype(np.float32), self._scales()
        groups = self._groups()
        for rows in row_blocks(self.shape[0]):
            values = numbers[rows] - zeros[rows].take(groups, axis=1)
            values *= scales[rows].take(groups, axis=1)
            yield values

    def rows(self) -> StoredRows:
        """The matrix as the products read it, where ``quantization`` is not None.

        Raises:
            ValueError: the file cannot be read, or a scale or an offset is not finite, the offset as float16.
        """
        numbers, scales = self.read_numbers(), self._scales()
        if self.bits == 8:
            return Int8Rows(values=(numbers ^ np.uint8(_MIDDLE)).view(np.int8), scales=scales[:, 0])
        assert self.quantization is not None
        with np.errstate(over="ignore"):
            offsets = (-self.read_zeros().astype(np.float32) * scales).astype(np.float16)
        if not np.isfinite(offsets).all():
            largest = float(np.abs(scales).max())
            raise self.parts.error(
                f"scales up to {largest:g} give offsets beyond float16; load the model with quantization 'none'"
            )
        group_size = self.quantization.group_size
        repeats = 1 if self.group_size is None or group_size is None else self.group_size // group_size
        num_groups = 1 if group_size is None else -(-self.shape[1] // group_size)
        scales, offsets = (
            np.repeat(array.astype(np.float16), repeats, axis=1)[:, :num_groups] for array in (scales, offsets)
        )
        return Int4Rows(values=numbers, scales=scales, offsets=offsets, group_size=group_size)

    def _groups(self) -> Int32[np.ndarray, "K"]:
        if self.group_of_input is not None:
            return self.group_of_input
        return in_order(self.shape[1], self.group_size)

    def _scales(self) -> Float32[np.ndarray, "N G"]:
        scales = self.read_scales().astype(np.float32)
        if not np.isfinite(scales).all():
            raise self.parts.error("some of its scales are not finite")
        return scales

    def _has_float16_scales(self) -> bool:
        if self.scale_dtype == "F16":
            return True
        scales = self.read_scales().astype(np.float32)
        with np.errstate(over="ignore"):
            return np.array_equal(scales.astype(np.float16).astype(np.float32), scales)


def in_order(num_inputs: int, group_size: int | None) -> Int32[np.ndarray, "K"]:
    """The group of each input where they are grouped in their order."""
    return np.arange(num_inputs, dtype=np.int32) // np.int32(group_size or max(1, num_inputs))


def within_row(num_inputs: int, group_size: int | None) -> int | None:
    """The group size, or None where one group holds the whole row."""
    return None if group_size is None or group_size >= num_inputs else group_size


def count_groups(num_inputs: int, group_size: int | None) -> int:
    """Groups of a row; the last one may be short."""
    return 1 if group_size is None else -(-num_inputs // group_size)


def read_group_of_input(
    parts: Parts, part: str, num_inputs: int, group_size: int | None, unset: int | None = None
) -> Int32[np.ndarray, "K"] | None:
    """The group of each input from a part of the module; None: there is no such part, or it has them in order.

    Args:
        parts, part: the part.
        num_inputs, group_size: of the matrix.
        unset: a number with which the part says, wherever it has it, that inputs are in order.

    Raises:
        ValueError: the part has another shape or type, or names a group that is not there.
    """
    if not parts.has(part):
        return None
    parts.check(part, ("I32",), (num_inputs,), f"one for each of {num_inputs} inputs")
    groups, num_groups = parts.read(part), count_groups(num_inputs, group_size)
    if unset is not None and unset in groups:
        return None
    wrong = groups[(groups < 0) | (groups >= num_groups)]
    if wrong.size:
        raise parts.error(f"{part} has {wrong[0]}; groups are 0 to {num_groups - 1}")
    return None if np.array_equal(groups, in_order(num_inputs, group_size)) else groups
