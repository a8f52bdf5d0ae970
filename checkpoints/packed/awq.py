"""AWQ's tensors, as AutoAWQ writes them for its ``gemm`` kernel.

``qweight`` int32 [K, N / 8] and ``qzeros`` int32 [G, N / 8] pack 4-bit numbers along the outputs, eight neighbours in
the order of ``AWQ_ORDER``; ``scales`` [G, N]. Zero points are stored as they are.
"""

from checkpoints.packed.bits import AWQ_ORDER, unpack_awq
from checkpoints.packed.config import AWQ, told
from checkpoints.packed.matrix import PackedMatrix, count_groups, within_row
from checkpoints.packed.parts import FLOATS, WORDS, Parts

PARTS = ("qweight", "qzeros", "scales")


def open_matrix(parts: Parts, packing: AWQ) -> PackedMatrix:
    """The matrix of one module; its numbers are read later.

    Raises:
        ValueError: a part is missing, or of a wrong type or shape.
    """
    num_inputs, num_words = parts.matrix("qweight", WORDS)
    num_outputs = num_words * len(AWQ_ORDER)
    group_size = within_row(num_inputs, packing.group_size)
    num_groups = count_groups(num_inputs, group_size)
    why = f"as [{num_outputs}, {num_inputs}] has it in {told(packing)}"
    parts.check("scales", FLOATS, (num_groups, num_outputs), why)
    parts.check("qzeros", WORDS, (num_groups, num_words), why)
    return PackedMatrix(
        parts=parts,
        method="AWQ",
        shape=(num_outputs, num_inputs),
        bits=4,
        group_size=group_size,
        group_of_input=None,
        scale_dtype=parts.dtype("scales"),
        read_numbers=lambda: unpack_awq(parts.read("qweight")),
        read_zeros=lambda: unpack_awq(parts.read("qzeros")),
        read_scales=lambda: parts.read("scales").T,
    )
