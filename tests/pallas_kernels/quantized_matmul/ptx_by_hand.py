"""A few instructions of PTX carried out, for assembly that the interpreters of the kernels do not run."""

import re

import numpy as np


def carry_out(assembly, arguments, num_results):
    """What the instructions leave in $0, $1 and on, each four bytes; ``arguments`` are what the others start with."""
    registers = dict(arguments)

    def value(operand):
        return registers[operand] if operand in registers else int(operand, 0)

    for operation, operands in re.findall(
        r"^\s*([a-z0-9]+(?:\.rn\.f32)?)(?:\.b32|\.rn\.bf16x2)? (.+);$", assembly, re.MULTILINE
    ):
        target, *sources = operands.split(", ")
        registers[target] = _OPERATIONS[operation](*map(value, sources)) & 0xFFFFFFFF
    return [registers[f"${number}"] for number in range(num_results)]


def as_bfloat16(words):
    """The two numbers of each word."""
    return (np.array(words, "<u4").view("<u2").astype("<u4") << 16).view("<f4").tolist()


def four_bytes(first):
    """A word of the bytes ``first`` to ``first + 3``, the lowest first."""
    return int.from_bytes(range(first, first + 4), "little")


def _permute(a, b, selector):
    source = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    return int.from_bytes((source[selector >> 4 * place & 7] for place in range(4)), "little")


def _lookup(a, b, c, table):
    """PTX's lop3: bit by bit, the bit of the table that the three bits number."""
    bits = [table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1 for i in range(32)]
    return sum(bit << i for i, bit in enumerate(bits))


def _fused(a, b, c):
    """Of small whole numbers, where nothing is rounded."""
    a, b, c = (np.array(as_bfloat16([each])) for each in (a, b, c))
    even, odd = (int(bits) >> 16 for bits in (a * b + c).astype("<f4").view("<u4"))
    return odd << 16 | even


def _fused_float32(a, b, c):
    a, b, c = (np.array(each, "<u4").view("<f4") for each in (a, b, c))
    return int((a * b + c).view("<u4"))


_OPERATIONS = {
    "fma": _fused,
    "fma.rn.f32": _fused_float32,
    "shl": lambda a, count: a << count,
    "prmt": _permute,
    "and": lambda a, b: a & b,
    "shr": lambda a, count: a >> count,
    "lop3": _lookup,
    "mov": lambda a: a,
}
