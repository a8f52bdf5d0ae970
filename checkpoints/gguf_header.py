"""The header of a GGUF file: its metadata and the list of its tensors.

The ``gguf`` library has a reader, but that one trusts the file: an array that claims 2**60 entries makes it append to a
list for ever, and it makes a NumPy object of each token of the vocabulary (2.4 s for 49,152 tokens; this walk takes
0.1 s). A loader meets torn and foreign files, so here every step is checked against the end of the file, and arrays,
which only tokenizers need, are stepped over. Types and block sizes are the library's.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf.constants import (
    GGML_QUANT_SIZES,
    GGUF_DEFAULT_ALIGNMENT,
    GGUF_MAGIC,
    GGMLQuantizationType,
    GGUFValueType,
)

_VERSIONS = (2, 3)
_MAX_DIMENSIONS = 4
_SCALARS = {
    GGUFValueType.UINT8: "<B",
    GGUFValueType.INT8: "<b",
    GGUFValueType.UINT16: "<H",
    GGUFValueType.INT16: "<h",
    GGUFValueType.UINT32: "<I",
    GGUFValueType.INT32: "<i",
    GGUFValueType.FLOAT32: "<f",
    GGUFValueType.BOOL: "<?",
    GGUFValueType.UINT64: "<Q",
    GGUFValueType.INT64: "<q",
    GGUFValueType.FLOAT64: "<d",
}


@dataclass(frozen=True)
class GGUFArray:
    """Stands for an array of the metadata: its length, not its entries."""

    length: int


@dataclass(frozen=True)
class GGUFTensor:
    """Where a tensor lies in the file.

    Attributes:
        shape: outermost axis first (the file has them the other way round).
        type: how its values are kept.
        offset: of its first byte, from the start of the file.
        row_bytes: bytes of one row along the innermost axis.
    """

    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int
    row_bytes: int

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape[:-1]) * self.row_bytes


@dataclass(frozen=True)
class GGUFHeader:
    """Metadata by key (numbers, strings, booleans, ``GGUFArray``) and tensors by name."""

    metadata: Mapping[str, object]
    tensors: Mapping[str, GGUFTensor]


def read_header(path: Path, buffer: mmap.mmap) -> GGUFHeader:
    """Parses the header of the GGUF file that ``buffer`` maps.

    Raises:
        ValueError: the file is foreign, truncated or malformed; the message names it, and the key or tensor if known.
    """
    try:
        return _read_header(_Cursor(buffer))
    except ValueError as error:
        raise ValueError(f"{path}: not a whole GGUF file: {error}") from error


class _Cursor:
    """A position in the file that refuses to go past its end."""

    def __init__(self, buffer: mmap.mmap) -> None:
        self._buffer = buffer
        self.size = len(buffer)
        self.offset = 0

    def skip(self, num_bytes: int) -> int:
        """Steps over some bytes and returns where they began."""
        start = self.offset
        if num_bytes > self.size - start:
            raise ValueError(f"{num_bytes} bytes are announced at byte {start} of {self.size}")
        self.offset = start + num_bytes
        return start

    def scalar(self, code: str) -> int | float | bool:
        return struct.unpack_from(code, self._buffer, self.skip(struct.calcsize(code)))[0]

    def integer(self, code: str) -> int:
        return int(self.scalar(code))

    def text(self) -> str:
        start = self.skip(self.integer("<Q"))
        return self._buffer[start : self.offset].decode("utf-8")


def _read_header(cursor: _Cursor) -> GGUFHeader:
    magic, version = cursor.integer("<I"), cursor.integer("<I")
    if magic != GGUF_MAGIC:
        raise ValueError("it does not begin with the letters GGUF")
    if version not in _VERSIONS:
        raise ValueError(f"its version is {version}; {_VERSIONS} can be read (a big-endian file cannot)")
    num_tensors, num_keys = cursor.integer("<Q"), cursor.integer("<Q")
    metadata: dict[str, object] = {}
    for _ in range(num_keys):
        key = cursor.text()
        if key in metadata:
            raise ValueError(f"the key {key} occurs twice")
        metadata[key] = _read_value(cursor, key)
    declared: dict[str, tuple[tuple[int, ...], GGMLQuantizationType, int]] = {}
    for _ in range(num_tensors):
        name = cursor.text()
        if name in declared:
            raise ValueError(f"the tensor {name} occurs twice")
        declared[name] = _read_tensor(cursor, name)
    data_start = _align(cursor.offset, metadata)
    tensors = {
        name: _place(name, shape, kind, data_start + offset, cursor.size)
        for name, (shape, kind, offset) in declared.items()
    }
    return GGUFHeader(metadata, tensors)


def _read_value(cursor: _Cursor, key: str) -> object:
    kind = _value_type(cursor, key)
    if kind is GGUFValueType.STRING:
        return cursor.text()
    if kind is GGUFValueType.ARRAY:
        return _skip_array(cursor, key)
    value = cursor.scalar(_SCALARS[kind])
    if kind is GGUFValueType.FLOAT32:
        # 1e-5 is meant where the file has the float32 next to it: take the shortest decimal that gives that float32.
        return float(str(np.float32(value)))
    return value


def _skip_array(cursor: _Cursor, key: str) -> GGUFArray:
    kind, length = _value_type(cursor, key), cursor.integer("<Q")
    if kind is GGUFValueType.ARRAY:
        raise ValueError(f"{key} is an array of arrays, which is not supported")
    if kind is GGUFValueType.STRING:
        for _ in range(length):
            cursor.skip(cursor.integer("<Q"))
    else:
        cursor.skip(length * struct.calcsize(_SCALARS[kind]))
    return GGUFArray(length)


def _value_type(cursor: _Cursor, key: str) -> GGUFValueType:
    number = cursor.integer("<I")
    try:
        return GGUFValueType(number)
    except ValueError:
        raise ValueError(f"{key} has the unknown type {number}") from None


def _read_tensor(cursor: _Cursor, name: str) -> tuple[tuple[int, ...], GGMLQuantizationType, int]:
    num_axes = cursor.integer("<I")
    if not 1 <= num_axes <= _MAX_DIMENSIONS:
        raise ValueError(f"{name} has {num_axes} axes; 1 to {_MAX_DIMENSIONS} are allowed")
    axes = [cursor.integer("<Q") for _ in range(num_axes)]
    number, offset = cursor.integer("<I"), cursor.integer("<Q")
    try:
        kind = GGMLQuantizationType(number)
    except ValueError:
        raise ValueError(f"{name} has the unknown type {number}") from None
    return tuple(reversed(axes)), kind, offset


def _align(offset: int, metadata: Mapping[str, object]) -> int:
    alignment = metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment is {alignment!r}; it must be a whole number of at least 1")
    return -(-offset // alignment) * alignment


def _place(name: str, shape: tuple[int, ...], kind: GGMLQuantizationType, offset: int, file_size: int) -> GGUFTensor:
    block_values, block_bytes = GGML_QUANT_SIZES[kind]
    if shape[-1] % block_values:
        raise ValueError(f"{name} has rows of {shape[-1]} values; {kind.name} needs a multiple of {block_values}")
    tensor = GGUFTensor(shape, kind, offset, shape[-1] // block_values * block_bytes)
    if offset + tensor.num_bytes > file_size:
        raise ValueError(f"{name} ends at byte {offset + tensor.num_bytes} of {file_size}")
    return tensor
