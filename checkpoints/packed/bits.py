"""Whole numbers of 4 or 8 bits out of int32 words.

Bytes and halves of bytes are taken, never single bits of wider numbers, so that no array is wider than the words or the
numbers themselves: a 14336 x 4096 matrix would have 470 MB as int64.
"""

import numpy as np
from jaxtyping import Int32, UInt8

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight neighbours stands at each place of a word, from the lowest bits up."""


def unpack(words: Int32[np.ndarray, "R W"], bits: int) -> UInt8[np.ndarray, "R C"]:
    """The numbers along each row, from the lowest bits of each word up: C = 32 W / bits."""
    octets = np.ascontiguousarray(words, dtype="<i4").view(np.uint8)
    if bits == 8:
        return octets
    numbers = np.empty((len(octets), 2 * octets.shape[1]), np.uint8)
    np.bitwise_and(octets, 15, out=numbers[:, ::2])
    np.right_shift(octets, 4, out=numbers[:, 1::2])
    return numbers


def unpack_awq(words: Int32[np.ndarray, "R W"]) -> UInt8[np.ndarray, "C R"]:
    """The 4-bit numbers along each row in their own order, as columns: C = 8 W."""
    columns = np.ascontiguousarray(words.T).view(np.uint32)
    numbers = np.empty((len(columns), len(AWQ_ORDER), len(words)), np.uint8)
    for place, output in enumerate(AWQ_ORDER):
        numbers[:, output] = (columns >> np.uint32(4 * place)) & np.uint32(15)
    return numbers.reshape(-1, len(words))
