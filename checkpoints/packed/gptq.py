"""GPTQ's tensors, as AutoGPTQ and GPTQModel write them.

``qweight`` int32 [K bits / 32, N] packs numbers along the inputs, ``qzeros`` int32 [G, N bits / 32] zero points along
the outputs, both from the lowest bits up; ``scales`` [G, N]; ``g_idx`` int32 [K] is the group of each input, which is
not k // group_size where inputs were sorted by their activations (``desc_act``).
"""

import numpy as np

from checkpoints.packed.bits import unpack
from checkpoints.packed.config import GPTQ, told
from checkpoints.packed.matrix import PackedMatrix, count_groups, read_group_of_input, within_row
from checkpoints.packed.parts import FLOATS, WORDS, Parts

PARTS = ("qweight", "qzeros", "scales", "g_idx")

_ONES = {4: 0x11111111, 8: 0x01010101}
"""What the first version of the format takes off a word of zero points. It does so from the word as one number, so that
a zero point of 0 borrows from its neighbour; adding it to the word gives both back.
"""


def open_matrix(parts: Parts, packing: GPTQ) -> PackedMatrix:
    """The matrix of one module; its numbers are read later.

    Raises:
        ValueError: a part is missing, of a wrong type or shape, or ``g_idx`` names a group that is not there.
    """
    bits, per_word = packing.bits, 32 // packing.bits
    num_words, num_outputs = parts.matrix("qweight", WORDS)
    num_inputs = num_words * per_word
    group_size = within_row(num_inputs, packing.group_size)
    num_groups = count_groups(num_inputs, group_size)
    why = f"as [{num_outputs}, {num_inputs}] has it in {told(packing)}"
    parts.check("scales", FLOATS, (num_groups, num_outputs), why)
    parts.check("qzeros", WORDS, (num_groups, -(-num_outputs // per_word)), why)

    def read_zeros() -> np.ndarray:
        words = parts.read("qzeros")
        if packing.zeros_less_one:
            words = (words.view(np.uint32) + np.uint32(_ONES[bits])).view(np.int32)
        return unpack(words, bits)[:, :num_outputs].T

    return PackedMatrix(
        parts=parts,
        method="GPTQ",
        shape=(num_outputs, num_inputs),
        bits=bits,
        group_size=group_size,
        group_of_input=read_group_of_input(parts, "g_idx", num_inputs, group_size),
        scale_dtype=parts.dtype("scales"),
        read_numbers=lambda: unpack(parts.read("qweight").T, bits),
        read_zeros=read_zeros,
        read_scales=lambda: parts.read("scales").T,
    )
