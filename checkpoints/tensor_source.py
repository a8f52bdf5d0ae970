"""What the loader needs of a file of tensors, whatever its format."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from checkpoints.stored_rows import StoredRows
from jaxinfer.config import Quantization

_BLOCK = 256


@dataclass(frozen=True)
class TensorInfo:
    """One tensor as its file declares it.

    Attributes:
        shape: outermost axis first, as NumPy counts.
        dtype: the file format's own name of the type, such as ``BF16`` or ``Q4_1``.
        readable: whether values of this type can be turned into floats.
        quantization: the format of the products that the tensor is in as it stands, number for number; None: it holds
            floats, or is quantized in a way that no product reads.
    """

    shape: tuple[int, ...]
    dtype: str
    readable: bool
    quantization: Quantization | None = None


class TensorSource(Protocol):
    """Named tensors on disk, read one at a time.

    Attributes:
        path: the file or folder, for messages.
        infos: every tensor that the source has, by name.
    """

    path: Path
    infos: Mapping[str, TensorInfo]

    def read(self, name: str) -> np.ndarray:
        """Values of one tensor, as floats of the precision in which they are kept.

        Raises:
            ValueError: the file cannot be read; the message names it and the tensor.
        """
        ...

    def blocks(self, name: str) -> Iterator[np.ndarray]:
        """What ``read`` gives, by the rows of ``row_blocks``, so that not all of it is held at once.

        Raises:
            ValueError: as ``read``.
        """
        ...

    def read_quantized(self, name: str) -> StoredRows:
        """One tensor as it is stored, of those whose ``TensorInfo.quantization`` is not None.

        Raises:
            ValueError: the file cannot be read; the message names it and the tensor.
        """
        ...


def row_blocks(num_rows: int) -> Iterator[slice]:
    """All rows of a tensor, some at a time, the same of every tensor with as many."""
    return (slice(start, min(start + _BLOCK, num_rows)) for start in range(0, num_rows, _BLOCK))
