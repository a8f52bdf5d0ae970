"""The header of a GGUF file: its metadata and the list of its tensors.

The ``gguf`` library has a reader, but that one trusts the file: an array that claims 2**60 entries makes it append to a
list for ever, and it makes a NumPy object of each token of the vocabulary (2.4 s for 49,152 tokens; this walk takes
0.05 s). A loader meets torn and foreign files, so here every step is checked against the end of the file. Arrays, which
only tokenizers need, are stepped over, and decoded when asked for. Types and block sizes are the library's.

One file holds a checkpoint and a vocabulary: ``checkpoints`` and ``jaxinfer.tokenizers`` both read it through here, so
that both say the same of a torn file, and neither imports the other.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

import math
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from gguf.constants import (
    GGML_QUANT_SIZES,
    GGUF_DEFAULT_ALIGNMENT,
    GGUF_MAGIC,
    GGMLQuantizationType,
    GGUFValueType,
)

type _Declared = tuple[tuple[int, ...], GGMLQuantizationType, int]
"""Shape, type, and offset from where the tensors' data begins."""

_VERSIONS = (2, 3)
_MAX_DIMENSIONS = 4
_LENGTH = struct.Struct("<Q")
_START = struct.Struct("<IIQQ")
"""Magic, version, number of tensors, number of keys."""

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
    """An array of the metadata, left in the file: it is known to lie inside it, but not yet what its items are.

    Attributes:
        kind: the type of every item; never an array.
        length: the number of items.
        offset: of the first item's first byte, from the start of the file.
    """

    kind: GGUFValueType
    length: int
    offset: int
    _buffer: mmap.mmap = field(repr=False, compare=False)

    def items(self) -> list[str | int | float | bool]:
        """The items, decoded anew by each call.

        Raises:
            ValueError: a string is not UTF-8; the message does not name the file.
        """
        if self.kind is GGUFValueType.STRING:
            return [*self._texts()]
        code = _SCALARS[self.kind]
        values = struct.unpack_from(f"<{self.length}{code[1]}", self._buffer, self.offset)
        return [_plain(self.kind, value) for value in values]

    def _texts(self) -> Iterator[str]:
        buffer, end = self._buffer, self.offset
        for i in range(self.length):
            start = end + _LENGTH.size
            end = start + _LENGTH.unpack_from(buffer, end)[0]
            try:
                yield buffer[start:end].decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(f"item {i} is not UTF-8: {error}") from error


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
    """What the header says, and the file that it is about.

    Attributes:
        metadata: numbers, strings, booleans and ``GGUFArray`` by key.
        tensors: where each lies, by name.
        metadata_end: where the metadata ends and the list of tensors begins.
        buffer: the whole file, mapped for as long as anything refers to it.
    """

    metadata: Mapping[str, object]
    tensors: Mapping[str, GGUFTensor]
    metadata_end: int
    buffer: mmap.mmap


def read_header(path: Path) -> GGUFHeader:
    """Maps the GGUF file at ``path`` and parses its header.

    Raises:
        ValueError: the file is missing, foreign, truncated or malformed; the message names it, and the key or tensor
            if known.
    """
    buffer = _map(path)
    try:
        return _read_header(_Cursor(buffer))
    except ValueError as error:
        raise ValueError(f"{path}: not a whole GGUF file: {error}") from error


def metadata_alone(path: Path) -> bytes:
    """A GGUF file with the metadata of the one at ``path``, byte for byte, and no tensors.

    Raises:
        ValueError: as ``read_header``.
    """
    header = read_header(path)
    magic, version, _, num_keys = _START.unpack_from(header.buffer)
    return _START.pack(magic, version, 0, num_keys) + header.buffer[_START.size : header.metadata_end]


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise ValueError(f"{path}: not a GGUF file: {error}") from error


class _Cursor:
    """A position in the file that refuses to go past its end."""

    def __init__(self, buffer: mmap.mmap) -> None:
        self.buffer = buffer
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
        return struct.unpack_from(code, self.buffer, self.skip(struct.calcsize(code)))[0]

    def integer(self, code: str) -> int:
        return int(self.scalar(code))

    def text(self) -> str:
        start = self.skip(self.integer("<Q"))
        return self.buffer[start : self.offset].decode("utf-8")

    def skip_texts(self, count: int) -> None:
        """Steps over strings, each a length and its bytes, in one loop: a vocabulary has hundreds of thousands."""
        buffer, offset, last = self.buffer, self.offset, self.size - _LENGTH.size
        for i in range(count):
            if offset > last:
                raise ValueError(f"string {i} of {count} would begin at byte {offset} of {self.size}")
            offset += _LENGTH.size + _LENGTH.unpack_from(buffer, offset)[0]
        self.skip(offset - self.offset)


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
    metadata_end = cursor.offset
    declared: dict[str, _Declared] = {}
    for _ in range(num_tensors):
        name = cursor.text()
        if name in declared:
            raise ValueError(f"the tensor {name} occurs twice")
        declared[name] = _read_tensor(cursor, name)
    tensors = _place_all(declared, cursor, _alignment(metadata))
    return GGUFHeader(metadata, tensors, metadata_end, cursor.buffer)


def _read_value(cursor: _Cursor, key: str) -> object:
    kind = _value_type(cursor, key)
    if kind is GGUFValueType.STRING:
        return cursor.text()
    if kind is GGUFValueType.ARRAY:
        return _skip_array(cursor, key)
    return _plain(kind, cursor.scalar(_SCALARS[kind]))


def _plain(kind: GGUFValueType, value: int | float | bool) -> int | float | bool:
    if kind is GGUFValueType.FLOAT32:
        # 1e-5 is meant where the file has the float32 next to it: take the shortest decimal that gives that float32.
        return float(str(np.float32(value)))
    return value


def _skip_array(cursor: _Cursor, key: str) -> GGUFArray:
    kind, length = _value_type(cursor, key), cursor.integer("<Q")
    if kind is GGUFValueType.ARRAY:
        raise ValueError(f"{key} is an array of arrays, which is not supported")
    array = GGUFArray(kind, length, cursor.offset, cursor.buffer)
    if kind is GGUFValueType.STRING:
        cursor.skip_texts(length)
    else:
        cursor.skip(length * struct.calcsize(_SCALARS[kind]))
    return array


def _value_type(cursor: _Cursor, key: str) -> GGUFValueType:
    number = cursor.integer("<I")
    try:
        return GGUFValueType(number)
    except ValueError:
        raise ValueError(f"{key} has the unknown type {number}") from None


def _read_tensor(cursor: _Cursor, name: str) -> _Declared:
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


def _alignment(metadata: Mapping[str, object]) -> int:
    alignment = metadata.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment is {alignment!r}; it must be a whole number of at least 1")
    return alignment


def _place_all(declared: Mapping[str, _Declared], cursor: _Cursor, alignment: int) -> dict[str, GGUFTensor]:
    """The tensors, once each begins where the format allows it and none lies on another."""
    data_start = -(-cursor.offset // alignment) * alignment
    tensors = {}
    for name, (shape, kind, offset) in declared.items():
        if offset % alignment:
            raise ValueError(f"{name} begins at byte {offset} of the data; it must be a multiple of {alignment}")
        tensors[name] = _place(name, shape, kind, data_start + offset, cursor.size)
    in_order = sorted(tensors.items(), key=lambda item: (item[1].offset, item[1].num_bytes))
    for (name, tensor), (following, other) in pairwise(in_order):
        if tensor.offset + tensor.num_bytes > other.offset:
            raise ValueError(f"{name} and {following} overlap")
    return tensors


def _place(name: str, shape: tuple[int, ...], kind: GGMLQuantizationType, offset: int, file_size: int) -> GGUFTensor:
    block_values, block_bytes = GGML_QUANT_SIZES[kind]
    if shape[-1] % block_values:
        raise ValueError(f"{name} has rows of {shape[-1]} values; {kind.name} needs a multiple of {block_values}")
    tensor = GGUFTensor(shape, kind, offset, shape[-1] // block_values * block_bytes)
    if offset + tensor.num_bytes > file_size:
        raise ValueError(f"{name} ends at byte {offset + tensor.num_bytes} of {file_size}")
    return tensor
