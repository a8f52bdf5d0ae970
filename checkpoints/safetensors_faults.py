"""Which tensor of a safetensors file is wrong, and how.

The library refuses such a file, but of most faults it does not say which tensor has it. This look at the header is only
taken once it has refused.

Format: https://github.com/huggingface/safetensors#format (eight bytes with the length of a JSON object, the object, and
the tensors' bytes without a gap).
"""

import json
import math
import os
from pathlib import Path

_MAX_HEADER_BYTES = 4_000_000
"""Tens of times the header of any model's file. Parsed, a header takes some thirty times its bytes, and one as large as
the library allows would take gigabytes for the sake of a better message.
"""

_BITS = {"F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16}


def find_fault(path: Path) -> str | None:
    """What is wrong with the first tensor of the file at ``path`` that is, or None where it is something else."""
    try:
        with path.open("rb") as file:
            header_bytes = int.from_bytes(file.read(8), "little")
            if header_bytes > _MAX_HEADER_BYTES:
                return None
            header = json.loads(file.read(header_bytes))
            data_bytes = os.fstat(file.fileno()).st_size - 8 - header_bytes
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(header, dict):
        return None
    tensors = ((name, _fault(entry, data_bytes)) for name, entry in header.items() if name != "__metadata__")
    return next((f"{name} {fault}" for name, fault in tensors if fault is not None), None)


def _fault(entry: object, data_bytes: int) -> str | None:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(begin), int(end)]} if _are_counts(shape):
            pass
        case _:
            return "is not described by a dtype, a shape of whole numbers and two data_offsets"
    if not 0 <= begin <= end <= data_bytes:
        return f"is said to lie at bytes {begin} to {end} of {data_bytes}"
    if dtype in _BITS and math.prod(shape) * _BITS[dtype] != (end - begin) * 8:
        return f"has {end - begin} bytes, which are not those of {dtype} and shape {tuple(shape)}"
    return None


def _are_counts(shape: list[object]) -> bool:
    return all(isinstance(length, int) and length >= 0 for length in shape)
