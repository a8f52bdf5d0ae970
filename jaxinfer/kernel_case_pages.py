"""Keys and values of small cases in pages, laid out and looked at on the host: what a kernel is given and what it left.

Pages are shuffled, and every slot without a token is NaN (of int8 numbers, which have none, its scale is), so that a
kernel which reads or writes a wrong place does not stay unnoticed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float, Int32

from pallas_kernels.paged_attention import LayerCache

_INT8_MAX = 127
"""The largest number of an int8 head; its scale is what that stands for."""

_NO_TOKEN = 99
"""Number in the int8 slots that hold no token."""


@dataclass(frozen=True)
class HostCache:
    """A layer's cache on the host, with the shapes and dtypes of ``LayerCache``."""

    pages: np.ndarray
    scales: np.ndarray | None

    @classmethod
    def of(cls, cache: LayerCache) -> "HostCache":
        """What is on the device."""
        return cls(np.asarray(cache.pages), None if cache.scales is None else np.asarray(cache.scales))

    def on_device(self) -> LayerCache:
        """On the device, made without any help of the device."""
        return LayerCache(*jax.device_put((self.pages, self.scales)))

    def at(self, slots: tuple[np.ndarray, np.ndarray]) -> "HostCache":
        """Of the tokens in the given slots (pages and places in them)."""
        return HostCache(self.pages[slots], None if self.scales is None else self.scales[slots])

    def is_equal_but_at(self, slots: tuple[np.ndarray, np.ndarray], other: "HostCache") -> bool:
        """Whether both hold the same, bit by bit (NaN is NaN), in all other slots; page 0, the dummy, aside."""
        mine, others = (
            [_without(slots, array) for array in (cache.pages, cache.scales) if array is not None]
            for cache in (self, other)
        )
        return all(np.array_equal(*arrays, equal_nan=True) for arrays in zip(mine, others, strict=True))

    @property
    def values(self) -> Float[np.ndarray, "*slots 2 K D"]:
        """The keys and values that it stands for, in float64."""
        numbers = self.pages.astype(np.float64)
        return numbers if self.scales is None else numbers * self.scales[..., None]


@dataclass(frozen=True)
class Table:
    """Which pages hold which positions of the sequences: in no order, and none of what lies before the oldest."""

    pages: Int32[np.ndarray, "R P"]
    first_page: Int32[np.ndarray, "R"]
    page_size: int

    @classmethod
    def of(cls, sequences: Sequence[np.ndarray], oldest: Sequence[int], num_rows: int, page_size: int) -> "Table":
        """The table of ``num_rows`` rows, the first of which have the sequences and the others the dummy page."""
        first_page, count = np.zeros((2, num_rows), np.int32)
        first_page[: len(sequences)] = [position // page_size for position in oldest[: len(sequences)]]
        count[: len(sequences)] = [-(-len(sequence) // page_size) for sequence in sequences]
        count -= first_page
        pages = np.zeros((num_rows, count.max()), np.int32)
        pages[np.arange(count.max()) < count[:, None]] = 1 + np.random.default_rng(2).permutation(count.sum())
        return cls(pages, first_page, page_size)

    def slots(self, row: int | np.ndarray, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Page and place in it of the tokens at the positions."""
        return self.pages[row, position // self.page_size - self.first_page[row]], position % self.page_size

    def cache(self, sequences: Sequence[Float[np.ndarray, "_ 2 K D"]], dtype: np.dtype) -> HostCache:
        """The pages with the sequences in them, of float32, bfloat16 or int8."""
        if dtype != np.int8:
            return HostCache(self._filled(sequences).astype(dtype), None)
        numbers, scales = zip(*map(quantized, sequences), strict=True)
        pages = np.nan_to_num(self._filled(numbers), nan=_NO_TOKEN)
        return HostCache(pages.astype(np.int8), self._filled(scales).astype(np.float32))

    def _filled(self, sequences: Sequence[np.ndarray]) -> Float[np.ndarray, "num_pages S *of_token"]:
        """Pages with the sequences in them and NaN elsewhere."""
        filled = np.full((1 + self.pages.max(), self.page_size, *sequences[0].shape[1:]), np.nan)
        for row, sequence in enumerate(sequences):
            position = np.arange(self.first_page[row] * self.page_size, len(sequence))
            filled[self.slots(row, position)] = sequence[position]
        return filled


def quantized(
    heads: Float[np.ndarray, "*heads D"],
) -> tuple[Float[np.ndarray, "*heads D"], Float[np.ndarray, "*heads"]]:
    """Each head as whole numbers in [-127, 127] and its scale, as ``layer_cache.quantize`` defines them; in float64."""
    scales = np.abs(heads).max(axis=-1) / _INT8_MAX
    return np.floor(heads / scales[..., None] + 0.5), scales


def as_held(heads: Float[np.ndarray, "*heads D"], dtype: np.dtype) -> Float[np.ndarray, "*heads D"]:
    """The heads as pages of ``dtype`` hold them; in float64."""
    if dtype != np.int8:
        return heads.astype(dtype).astype(np.float64)
    numbers, scales = quantized(heads)
    return numbers * scales.astype(np.float32)[..., None]


def number_error(numbers: np.ndarray, heads: Float[np.ndarray, "*heads D"]) -> float:
    """How far int8 numbers are from those of the heads: 0 where they are the nearest, infinite from two steps on.

    A number that is one step off is right if the head's own number lies where the two meet, since a kernel knows that
    only as exactly as it computes: its error is how far the head is from there, as a share of the largest number.
    """
    nearest, scales = quantized(heads)
    if np.abs(numbers - nearest).max() > 1:
        return np.inf
    beyond_half = np.abs(numbers - heads / scales[..., None]) - 0.5
    return float(beyond_half.max(initial=0) / _INT8_MAX)


def _without(slots: tuple[np.ndarray, np.ndarray], pages: np.ndarray) -> np.ndarray:
    """The pages but the dummy one, with zeros in the slots; in float64."""
    rest = pages.astype(np.float64)
    rest[slots] = 0
    return rest[1:]
