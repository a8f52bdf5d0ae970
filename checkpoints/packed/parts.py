"""The tensors that together stand for the weight of one module, checked before they are read."""

import reprlib
from collections.abc import Collection

import numpy as np

from checkpoints.tensor_source import TensorSource

FLOATS = ("F16", "BF16", "F32")
WORDS = ("I32",)


class Parts:
    """The tensors ``MODULE.PART`` of a file.

    Attributes:
        module: such as ``model.layers.3.mlp.down_proj``.
    """

    def __init__(self, source: TensorSource, module: str) -> None:
        self.module = module
        self._source = source

    def has(self, part: str) -> bool:
        """Whether the file has this part."""
        return self._name(part) in self._source.infos

    def dtype(self, part: str) -> str:
        """The file's name of the part's type."""
        return self._source.infos[self._name(part)].dtype

    def shape(self, part: str) -> tuple[int, ...]:
        """The part's shape."""
        return self._source.infos[self._name(part)].shape

    def matrix(self, part: str, dtypes: Collection[str]) -> tuple[int, int]:
        """The shape of a part that must have two axes.

        Raises:
            ValueError: the part is missing, or has another number of axes or another type.
        """
        self._check_type(part, dtypes)
        shape = self.shape(part)
        if len(shape) != 2:
            raise self.error(f"{part} has the shape {_shown(shape)}; it must have two axes")
        return shape[0], shape[1]

    def check(self, part: str, dtypes: Collection[str], shape: tuple[int, ...], why: str) -> None:
        """Fails unless the part is of one of these types and of this shape.

        Args:
            part: its name.
            dtypes: the types.
            shape: the shape.
            why: what the shape follows from, for the message.

        Raises:
            ValueError: it is not.
        """
        self._check_type(part, dtypes)
        if self.shape(part) != shape:
            raise self.error(f"{part} has the shape {_shown(self.shape(part))}; it must be {_shown(shape)}, {why}")

    def read(self, part: str) -> np.ndarray:
        """The part's values."""
        return self._source.read(self._name(part))

    def error(self, what: str) -> ValueError:
        """The error that says what is wrong with this module."""
        return ValueError(f"{self._source.path}: {self.module}: {what}")

    def _name(self, part: str) -> str:
        return f"{self.module}.{part}"

    def _check_type(self, part: str, dtypes: Collection[str]) -> None:
        if not self.has(part):
            raise self.error(f"{part} is missing")
        if self.dtype(part) not in dtypes:
            raise self.error(f"{part} is {self.dtype(part)}; it must be {' or '.join(dtypes)}")


def _shown(shape: tuple[int, ...]) -> str:
    return reprlib.repr(shape)
