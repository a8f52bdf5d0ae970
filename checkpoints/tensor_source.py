"""What the loader needs of a file of tensors, whatever its format."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

ALL_ROWS = slice(None)


@dataclass(frozen=True)
class TensorInfo:
    """One tensor as its file declares it.

    Attributes:
        shape: outermost axis first, as NumPy counts.
        dtype: the file format's own name of the type, such as ``BF16`` or ``Q4_1``.
        readable: whether values of this type can be turned into floats.
    """

    shape: tuple[int, ...]
    dtype: str
    readable: bool


class TensorSource(Protocol):
    """Named tensors on disk, read one at a time.

    Attributes:
        path: the file or folder, for messages.
        infos: every tensor that the source has, by name.
    """

    path: Path
    infos: Mapping[str, TensorInfo]

    def read(self, name: str, rows: slice = ALL_ROWS) -> np.ndarray:
        """Values of one tensor, or of some of its rows, as floats of the precision in which they are kept.

        Raises:
            ValueError: the file cannot be read; the message names it and the tensor.
        """
        ...
