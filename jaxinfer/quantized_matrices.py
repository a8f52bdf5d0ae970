"""What of a checkpoint is quantized: how many matrices, of which types, what becomes of them, and what they take.

In words for ``jaxinfer info`` and for whoever loads such a model. No jax here: ``info`` does without.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from jaxinfer.config import Quantization
from jaxinfer.weights import Formats

_FLOATS = frozenset({"F64", "F32", "F16", "BF16", "float64", "float32", "float16", "bfloat16"})
_PIECE = 128
"""Inputs that a quantized matrix is filled up to a multiple of, as in ``pallas_kernels.quantized_matmul``."""


@dataclass(frozen=True, kw_only=True)
class QuantizedMatrices:
    """Matrices of a checkpoint that are alike.

    Attributes:
        types: the files' own names of the quantized types that the parts of each have.
        kept: the format that they stay in; None: they are dequantized.
        count: how many there are.
    """

    types: tuple[str, ...]
    kept: Quantization | None
    count: int


def quantized_matrices(dtypes: Mapping[str, tuple[str, ...]], kept: Formats) -> tuple[QuantizedMatrices, ...]:
    """All that a checkpoint has.

    Args:
        dtypes: for each weight the files' own names of the types of its parts.
        kept: those that stay quantized as they are.
    """
    types_of = {name: tuple(each for each in types if each not in _FLOATS) for name, types in dtypes.items()}
    counts = Counter((types, kept.get(name)) for name, types in types_of.items() if types)
    return tuple(QuantizedMatrices(types=types, kept=how, count=count) for (types, how), count in counts.items())


def fates_in_words(dtypes: Mapping[str, tuple[str, ...]], stored: Formats, formats: Formats) -> str:
    """What becomes of the matrices that a checkpoint holds quantized; empty where there are none.

    Args:
        dtypes: for each weight the files' own names of the types of its parts.
        stored: those that can stay quantized as they are.
        formats: how each weight will be held.
    """
    kept = {name: how for name, how in stored.items() if formats.get(name) == how}
    anew = {name: wanted for name, wanted in formats.items() if name not in kept}
    found = quantized_matrices({name: types for name, types in dtypes.items() if name not in anew}, kept)
    rounded = quantized_matrices({name: types for name, types in dtypes.items() if name in anew}, anew)
    return in_words(found, rounded)


def in_words(found: Iterable[QuantizedMatrices], rounded: Iterable[QuantizedMatrices] = ()) -> str:
    """``120 matrices stay int4 in groups of 32 (Q4_1), 1 is dequantized (Q8_0)``; empty where there are none.

    Args:
        found: matrices that stay as they are or are dequantized.
        rounded: such as are dequantized and then rounded to another format, which ``kept`` names.
    """
    types: dict[tuple[Quantization | None, bool], dict[str, None]] = {}
    counts: Counter[tuple[Quantization | None, bool]] = Counter()
    for is_rounded, group in ((False, found), (True, rounded)):
        for each in group:
            types.setdefault((each.kept, is_rounded), {}).update(dict.fromkeys(each.types))
            counts[each.kept, is_rounded] += each.count
    parts: list[str] = []
    for fate in sorted(counts, key=lambda fate: fate[0] is None):
        noun = "" if parts else " matrix" if counts[fate] == 1 else " matrices"
        parts.append(f"{counts[fate]}{noun} {_becomes(*fate, counts[fate])} ({', '.join(types[fate])})")
    return ", ".join(parts)


def num_bytes(shape: tuple[int, ...], bytes_per_float: int, quantization: Quantization | None) -> int:
    """Bytes of a weight on the device, as ``checkpoints.quantization.abstract_weights`` has it."""
    if quantization is None:
        return prod(shape) * bytes_per_float
    num_outputs, num_inputs = shape
    padded = -(-num_inputs // _PIECE) * _PIECE
    if quantization.bits == 8:
        return num_outputs * (padded + 4)  # a scale in float32
    num_groups = padded // (quantization.group_size or padded)
    return num_outputs * (padded // 2 + 4 * num_groups)  # scale and offset in float16


def _becomes(quantization: Quantization | None, is_rounded: bool, count: int) -> str:
    be = "is" if count == 1 else "are"
    if quantization is None:
        return f"{be} dequantized"
    if is_rounded:
        return f"{be} rounded anew to {quantization}"
    return f"{'stays' if count == 1 else 'stay'} {quantization}"
