"""Walks a table: checks a file of tensors against a model, then fills the model's weights one by one.

The check comes before anything is read and reports faults of every kind at once: a file with one misnamed tensor has at
least two, and both are needed to understand it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from checkpoints.float_types import check_float_type
from checkpoints.stored_rows import StoredRows
from checkpoints.tables import Entry, Table, part_rows
from checkpoints.tensor_source import TensorInfo, TensorSource
from jaxinfer.config import ModelConfig
from jaxinfer.weights import Formats, weight_shapes

_TOLD_FAULTS = 20
"""Of each kind. A foreign model has thousands, and the first ones tell as much."""


@dataclass(frozen=True)
class _Piece:
    """One tensor of the file and the rows of a weight that it fills."""

    source: str
    shape: tuple[int, ...]
    rows: slice
    entry: Entry


class WeightLoader:
    """The weights of one model from one source by one table.

    Attributes:
        stored: the weights that the file holds quantized as a product reads them, number for number, all parts of a
            weight alike.
        dtypes: for each weight the file's own names of the types of its parts.

    Raises:
        ValueError: a tensor is missing, unexpected, misshapen or of a dtype that cannot be read. The message names
            them, with the shape found and the shape expected.
    """

    def __init__(self, table: Table, config: ModelConfig, source: TensorSource) -> None:
        self._config = config
        self._source = source
        self._shapes = weight_shapes(config)
        self._pieces = _pieces(table, config, self._shapes)
        filled = {piece.source for pieces in self._pieces.values() for piece in pieces}
        self._copies = {
            name: original
            for name, original in table.copies.items()
            if name not in filled and name in source.infos and original in source.infos
        }
        faults = self._faults(table)
        if faults:
            raise ValueError(f"{source.path}: the tensors do not fit the model:\n  " + "\n  ".join(faults))
        infos = {name: [source.infos[piece.source] for piece in pieces] for name, pieces in self._pieces.items()}
        self.stored: Formats = {
            name: found[0].quantization
            for name, found in infos.items()
            if found[0].quantization is not None and len({info.quantization for info in found}) == 1
        }
        self.dtypes: Mapping[str, tuple[str, ...]] = {
            name: tuple(dict.fromkeys(info.dtype for info in found)) for name, found in infos.items()
        }

    def weights(self, dtype: np.dtype | type, formats: Formats) -> Iterator[tuple[str, np.ndarray | StoredRows]]:
        """Yields (name, weight) for each of ``weight_shapes(config)``, in that order.

        Lazy: beside the weight that is filled only one tensor of the file is held. Arrays are fresh and contiguous.

        Args:
            dtype: of the floats, float32 or bfloat16.
            formats: what the weights are wanted in. Those that are ``stored`` so come as they are; all others as
                floats, whatever is made of them then.

        Raises:
            ValueError: ``dtype`` is neither float32 nor bfloat16, a tensor that must be a copy of another one is not,
                or the file cannot be read.
        """
        dtype = np.dtype(dtype)
        check_float_type(dtype)
        self._check_copies()
        return (
            (name, self._join(name) if self._is_wanted_as_stored(name, formats) else self._fill(name, dtype))
            for name in self._shapes
        )

    def _is_wanted_as_stored(self, name: str, formats: Formats) -> bool:
        return name in self.stored and formats.get(name) == self.stored[name]

    def _fill(self, name: str, dtype: np.dtype) -> np.ndarray:
        weight = np.empty(self._shapes[name], dtype)
        for piece in self._pieces[name]:
            view = piece.entry.order(weight[piece.rows], self._config.head_dim)
            view[...] = self._source.read(piece.source).reshape(view.shape)
        return weight

    def _join(self, name: str) -> StoredRows:
        """The rows of all parts, each in the model's order."""
        columns: list[np.ndarray] = []
        for piece in self._pieces[name]:
            rows = self._source.read_quantized(piece.source)
            parts = rows.columns()
            columns = columns or [np.empty((self._shapes[name][0], part.shape[1]), part.dtype) for part in parts]
            for column, part in zip(columns, parts, strict=True):
                view = piece.entry.order(column[piece.rows], self._config.head_dim)
                view[...] = part.reshape(view.shape)
        return rows.with_columns(*columns)

    def _check_copies(self) -> None:
        for name, original in self._copies.items():
            blocks = self._source.blocks(name), self._source.blocks(original)  # the two can be a gigabyte each
            if not all(np.array_equal(*pair) for pair in zip(*blocks, strict=True)):
                raise ValueError(
                    f"{self._source.path}: the config ties the embeddings, but {name} is not equal to {original}"
                )

    def _faults(self, table: Table) -> list[str]:
        """One line for each tensor that does not fit."""
        infos = self._source.infos
        expected = {piece.source: piece.shape for pieces in self._pieces.values() for piece in pieces}
        expected |= {name: infos[original].shape for name, original in self._copies.items()}
        ignored = {name for pattern in table.ignored for name in _expand(pattern, self._config.num_layers)}
        missing = [f"missing: {name}, shape {shape}" for name, shape in expected.items() if name not in infos]
        unfilled = [
            f"not filled: {name}, shape {shape}: no tensor of this layout is known to hold it"
            for name, shape in self._unfilled()
        ]
        faults: list[str] = []
        for name, info in infos.items():
            if name in expected:
                faults += _misfits(name, info, expected[name])
            elif name not in ignored:
                faults.append(f"unexpected: {name}, shape {info.shape}")
        return [*_first(missing), *_first(unfilled), *_first(faults)]

    def _unfilled(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The weights that would be left with rows of whatever was in memory."""
        for name, shape in self._shapes.items():
            if sum(piece.shape[0] for piece in self._pieces[name]) != shape[0]:
                yield name, shape


def _first(faults: list[str]) -> list[str]:
    told, more = faults[:_TOLD_FAULTS], len(faults) - _TOLD_FAULTS
    return [*told, f"and {more} more"] if more > 0 else told


def _misfits(name: str, info: TensorInfo, expected: tuple[int, ...]) -> Iterator[str]:
    if info.shape != expected:
        yield f"misshapen: {name}, shape {info.shape}, expected {expected}"
    if not info.readable:
        yield f"unreadable: {name} is {info.dtype}, a type that is not supported"


def _pieces(table: Table, config: ModelConfig, shapes: dict[str, tuple[int, ...]]) -> dict[str, list[_Piece]]:
    """What fills each weight, in the table's order."""
    rows_of = part_rows(config)
    pieces: dict[str, list[_Piece]] = {name: [] for name in shapes}
    for entry in table.entries:
        targets = _expand(entry.weight, config.num_layers)
        for source, target in zip(_expand(entry.source, config.num_layers), targets, strict=True):
            if target in shapes:
                rows = rows_of[entry.part]
                first, end, _ = rows.indices(shapes[target][0])
                pieces[target].append(_Piece(source, (end - first, *shapes[target][1:]), rows, entry))
    return pieces


def _expand(pattern: str, num_layers: int) -> list[str]:
    """The names a pattern stands for: one for each layer, or itself."""
    if "{layer}" not in pattern:
        return [pattern]
    return [pattern.replace("{layer}", str(i)) for i in range(num_layers)]
