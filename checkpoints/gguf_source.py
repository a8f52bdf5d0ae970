"""Tensors of a GGUF file, dequantized one at a time by the ``gguf`` library."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from checkpoints.tensor_source import ALL_ROWS, TensorInfo
from jaxinfer.gguf_header import GGUFTensor, read_header

_VALUES_AT_ONCE = 2**20


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

    def read(self, name: str, rows: slice = ALL_ROWS) -> np.ndarray:
        """See ``TensorSource.read``; the values are float32."""
        tensor = self._tensors[name]
        packed = np.frombuffer(self._buffer, np.uint8, tensor.num_bytes, tensor.offset)
        packed = packed.reshape(*tensor.shape[:-1], tensor.row_bytes)[rows]
        if packed.ndim == 1:
            return dequantize(packed, tensor.type)
        values = np.empty((*packed.shape[:-1], tensor.shape[-1]), np.float32)
        # The library holds its result twice while it makes it: so not all rows at once.
        step = max(1, _VALUES_AT_ONCE // tensor.shape[-1])
        for start in range(0, len(packed), step):
            some = slice(start, start + step)
            values[some] = dequantize(packed[some], tensor.type)
        return values


def _info(tensor: GGUFTensor) -> TensorInfo:
    return TensorInfo(shape=tensor.shape, dtype=tensor.type.name, readable=_can_dequantize(tensor.type))


@cache
def _can_dequantize(kind: GGMLQuantizationType) -> bool:
    """Whether the library turns this type into floats; it has no list of them, so one block is tried."""
    _, block_bytes = GGML_QUANT_SIZES[kind]
    try:
        dequantize(np.zeros((1, block_bytes), np.uint8), kind)
    except NotImplementedError:
        return False
    return True
