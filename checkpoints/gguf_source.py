"""Tensors of a GGUF file, one at a time: dequantized by the ``gguf`` library, or as they stand for the products.

Of GGUF's types ``Q4_0`` and ``Q4_1`` are INT4 by groups of 32 number for number. ``Q8_0`` is not INT8 as the products
have it, since it has a scale for every 32 inputs and they one for the whole row.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from mmap import MADV_DONTNEED, PAGESIZE
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from checkpoints.stored_rows import Int4Rows, StoredRows
from checkpoints.tensor_source import TensorInfo, row_blocks
from jaxinfer.config import Quantization
from jaxinfer.gguf_header import GGUFTensor, read_header

_VALUES_AT_ONCE = 2**20

_GROUP_SIZE = 32
_ZERO_POINT = 8
"""What ``Q4_0`` takes off every number. Eight times a float16 is one too, or more than any is."""

_BLOCKS = {
    GGMLQuantizationType.Q4_0: np.dtype([("scale", "<f2"), ("nibbles", "u1", _GROUP_SIZE // 2)]),
    GGMLQuantizationType.Q4_1: np.dtype([("scale", "<f2"), ("offset", "<f2"), ("nibbles", "u1", _GROUP_SIZE // 2)]),
}
"""A group of 32 values, as in ``ggml-common.h``: byte i has value i in its low four bits, 16 + i in its high ones."""


class GGUFSource:
    """The tensors and the metadata of one GGUF file; opening it reads only the header.

    Attributes:
        metadata: numbers, strings and booleans by key; arrays as ``GGUFArray``, which leaves its items in the file.

    Raises:
        ValueError: the file is missing, truncated or foreign.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        header = read_header(path)
        self._buffer = header.buffer
        self.metadata = header.metadata
        self._tensors = header.tensors
        self.infos: Mapping[str, TensorInfo] = {name: _info(tensor) for name, tensor in header.tensors.items()}

    def read(self, name: str) -> np.ndarray:
        """See ``TensorSource.read``; the values are float32."""
        return self._read(name, slice(None))

    def blocks(self, name: str) -> Iterator[np.ndarray]:
        """See ``TensorSource.blocks``."""
        return (self._read(name, rows) for rows in row_blocks(self.infos[name].shape[0]))

    def _read(self, name: str, rows: slice) -> np.ndarray:
        values = self._dequantized(name, rows)
        self._release(name)
        return values

    def _dequantized(self, name: str, rows: slice) -> np.ndarray:
        tensor, packed = self._tensors[name], self._packed(name)[rows]
        if packed.ndim == 1:
            return dequantize(packed, tensor.type)
        values = np.empty((*packed.shape[:-1], tensor.shape[-1]), np.float32)
        # The library holds its result twice while it makes it: so not all rows at once.
        step = max(1, _VALUES_AT_ONCE // tensor.shape[-1])
        for start in range(0, len(packed), step):
            some = slice(start, start + step)
            values[some] = dequantize(packed[some], tensor.type)
        return values

    def read_quantized(self, name: str) -> StoredRows:
        """See ``TensorSource.read_quantized``. A model whose weights are of any use has no such number as is refused.

        Raises:
            ValueError: a scale or an offset is not a finite float16.
        """
        kind = self._tensors[name].type
        blocks = self._packed(name).view(_BLOCKS[kind])
        nibbles, scales = blocks["nibbles"], blocks["scale"]
        with np.errstate(over="ignore", invalid="ignore"):
            is_symmetric = kind is GGMLQuantizationType.Q4_0
            offsets = scales * np.float16(-_ZERO_POINT) if is_symmetric else blocks["offset"]
        if not (np.isfinite(scales).all() and np.isfinite(offsets).all()):
            raise ValueError(
                f"{self.path}: {name} cannot stay {kind.name}: a scale or an offset is too large for float16 or no "
                "number; quantization 'none' makes floats of it"
            )
        values = np.concatenate([nibbles & 15, nibbles >> 4], axis=2).reshape(len(nibbles), -1)
        scales, offsets = scales.copy(), offsets.copy()
        self._release(name)
        return Int4Rows(values=values, scales=scales, offsets=offsets, group_size=_GROUP_SIZE)

    def _release(self, name: str) -> None:
        """What was read of a mapped file counts as memory of the process until it is told that it is not needed."""
        tensor = self._tensors[name]
        start = tensor.offset // PAGESIZE * PAGESIZE
        self._buffer.madvise(MADV_DONTNEED, start, tensor.offset + tensor.num_bytes - start)

    def _packed(self, name: str) -> np.ndarray:
        tensor = self._tensors[name]
        packed = np.frombuffer(self._buffer, np.uint8, tensor.num_bytes, tensor.offset)
        return packed.reshape(*tensor.shape[:-1], tensor.row_bytes)


def _info(tensor: GGUFTensor) -> TensorInfo:
    is_int4 = tensor.type in _BLOCKS and len(tensor.shape) == 2
    return TensorInfo(
        shape=tensor.shape,
        dtype=tensor.type.name,
        readable=_can_dequantize(tensor.type),
        quantization=Quantization(bits=4, group_size=_GROUP_SIZE) if is_int4 else None,
    )


@cache
def _can_dequantize(kind: GGMLQuantizationType) -> bool:
    """Whether the library turns this type into floats; it has no list of them, so one block is tried."""
    _, block_bytes = GGML_QUANT_SIZES[kind]
    try:
        dequantize(np.zeros((1, block_bytes), np.uint8), kind)
    except NotImplementedError:
        return False
    return True
