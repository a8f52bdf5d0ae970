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


def in_words(found: Iterable[QuantizedMatrices]) -> str:
    """``120 matrices stay int4 in groups of 32 (Q4_1), 1 is dequantized (Q8_0)``; empty where there are none."""
    types: dict[Quantization | None, dict[str, None]] = {}
    counts: Counter[Quantization | None] = Counter()
    for each in found:
        types.setdefault(each.kept, {}).update(dict.fromkeys(each.types))
        counts[each.kept] += each.count
    parts: list[str] = []
    for kept in sorted(counts, key=lambda kept: kept is None):
        noun = "" if parts else " matrix" if counts[kept] == 1 else " matrices"
        parts.append(f"{counts[kept]}{noun} {_becomes(kept, counts[kept])} ({', '.join(types[kept])})")
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


def _becomes(kept: Quantization | None, count: int) -> str:
    if kept is None:
        return "is dequantized" if count == 1 else "are dequantized"
    return f"{'stays' if count == 1 else 'stay'} {kept}"
