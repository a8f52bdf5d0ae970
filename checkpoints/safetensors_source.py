"""Tensors of one safetensors file or of several that belong together.

Hugging Face and Mistral name their files alike but for the stem (``model`` and ``consolidated``), so one rule finds
both: the index if there is one, else the single file, else a complete set of shards. The index is authoritative: its
map is the list of the checkpoint's tensors, and files that it does not name are not opened.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import ml_dtypes  # noqa: F401  NumPy knows bfloat16 once this is imported; safetensors asks NumPy for it by name
import numpy as np
from safetensors import SafetensorError, safe_open

from checkpoints.safetensors_faults import find_fault
from checkpoints.stored_rows import StoredRows
from checkpoints.tensor_source import TensorInfo, row_blocks

_READABLE = frozenset({"F32", "F16", "BF16"})

Files = Mapping[Path, frozenset[str] | None]
"""Files of a checkpoint, each with the names of its tensors, or None where no index says them."""


class _Slice(Protocol):
    """A tensor of an open file, not read yet. The library's own classes carry no types."""

    def get_shape(self) -> list[int]: ...
    def get_dtype(self) -> str: ...
    def __getitem__(self, rows: slice) -> np.ndarray: ...


class _Opened(Protocol):
    """An open file of the library."""

    def keys(self) -> Iterable[str]: ...
    def get_slice(self, name: str) -> _Slice: ...


def expected_files(stem: str) -> str:
    """The names that ``find_files`` looks for, for messages."""
    return f"{stem}.safetensors.index.json, {stem}.safetensors or {stem}-*-of-*.safetensors"


def has_files(folder: Path, stem: str) -> bool:
    """Whether the folder holds an index or any weight file of this stem."""
    return _index(folder, stem).is_file() or _single(folder, stem).is_file() or bool(_shards(folder, stem))


def find_files(folder: Path, stem: str) -> Files:
    """The weight files of ``folder`` whose names begin with ``stem``.

    Raises:
        ValueError: there are none, the index is malformed, or a file of the index or of the set of shards is absent.
    """
    index = _index(folder, stem)
    if index.is_file():
        return _files_of_index(index)
    if os.path.lexists(index):
        raise ValueError(f"{index}: neither a file nor a link to one")
    if _single(folder, stem).is_file():
        return {_single(folder, stem): None}
    if shards := _shards(folder, stem):
        return _complete(folder, stem, shards)
    raise ValueError(f"{folder}: no weights; looked for {expected_files(stem)}")


class SafetensorsSource:
    """The tensors of ``files``; opening them reads only their headers.

    The library maps a file for as long as it is open, and what was read of it then counts as memory of the process. So
    a file is opened anew for each tensor, which takes about a millisecond.

    Raises:
        ValueError: a file is missing, truncated or foreign, lacks a tensor that the index says it has, or holds a
            tensor that another one holds too.
    """

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self._files: dict[str, Path] = {}
        infos: dict[str, TensorInfo] = {}
        for file, names in files.items():
            handle = _open(file)
            present = frozenset(handle.keys())
            if absent := sorted((names or frozenset()) - present):
                raise ValueError(f"{file}: the index says that this file has {', '.join(absent)}; it has not")
            for name in sorted(present if names is None else names):
                if name in infos:
                    raise ValueError(f"{file}: {name} is also in {self._files[name]}; which one counts is unknown")
                infos[name] = _info(handle, name)
                self._files[name] = file.absolute()  # to be found again, wherever the process goes meanwhile
        self.infos: Mapping[str, TensorInfo] = infos

    def read(self, name: str) -> np.ndarray:
        """See ``TensorSource.read``; the values keep the file's dtype."""
        return self._read(name, slice(None))

    def blocks(self, name: str) -> Iterator[np.ndarray]:
        """See ``TensorSource.blocks``."""
        return (self._read(name, rows) for rows in row_blocks(self.infos[name].shape[0]))

    def read_quantized(self, name: str) -> StoredRows:
        """Not for these tensors, which are floats each by itself; see ``TensorSource.read_quantized``."""
        raise NotImplementedError(f"{name} is {self.infos[name].dtype}")

    def _read(self, name: str, rows: slice) -> np.ndarray:
        file, expected = self._files[name], self.infos[name]
        try:
            handle = _open(file)
            found = _info(handle, name)
            if found == expected:
                return handle.get_slice(name)[rows]
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file}: {name} cannot be read: {error}") from error
        raise ValueError(
            f"{file}: {name} is {found.dtype} of shape {found.shape}; when the file was opened it was {expected.dtype} "
            f"of shape {expected.shape}: the file has been replaced"
        )


def _index(folder: Path, stem: str) -> Path:
    return folder / f"{stem}.safetensors.index.json"


def _single(folder: Path, stem: str) -> Path:
    return folder / f"{stem}.safetensors"


def _shards(folder: Path, stem: str) -> list[Path]:
    return sorted(file for file in folder.glob(f"{stem}-*-of-*.safetensors") if file.is_file())


def _files_of_index(index: Path) -> Files:
    try:
        weight_map = json.loads(index.read_bytes())["weight_map"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{index}: not an index with a weight_map: {error!r}") from error
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(f"{index}: weight_map is {type(weight_map).__name__}; it must map tensors to files")
    names: dict[Path, set[str]] = {}
    for tensor, file in weight_map.items():
        # An index comes from anyone: it may name files beside it, not files elsewhere on this machine.
        if not isinstance(file, str) or Path(file).name != file:
            raise ValueError(f"{index}: {tensor} is in {file!r}; it must be a file beside the index")
        names.setdefault(index.parent / file, set()).add(tensor)
    if absent := [
        file.name for file in names if not os.path.isfile(file)
    ]:  # pathlib's raises on a name that is too long
        raise ValueError(f"{index}: it names files that are not there: {', '.join(sorted(absent))}")
    return {file: frozenset(tensors) for file, tensors in names.items()}


def _complete(folder: Path, stem: str, shards: list[Path]) -> Files:
    """Shards without an index, once their names say that none is absent."""
    numbers = [re.fullmatch(rf"{stem}-(\d+)-of-(\d+)\.safetensors", shard.name) for shard in shards]
    found = {(int(match[1]), int(match[2])) for match in numbers if match}
    count = len(shards)
    if found != {(i + 1, count) for i in range(count)}:
        listed = ", ".join(shard.name for shard in shards)
        raise ValueError(f"{folder}: not one complete set of shards, and no index says more: {listed}")
    return dict.fromkeys(shards)


def _open(file: Path) -> _Opened:
    try:
        file.open("rb").close()  # the library calls every file absent that it cannot open
        return safe_open(file, framework="numpy")
    except OSError as error:
        raise ValueError(f"{file}: not a whole safetensors file: {error}") from error
    except SafetensorError as error:
        raise ValueError(f"{file}: not a whole safetensors file: {find_fault(file) or error}") from error


def _info(handle: _Opened, name: str) -> TensorInfo:
    tensor = handle.get_slice(name)
    dtype = tensor.get_dtype()
    return TensorInfo(shape=tuple(tensor.get_shape()), dtype=dtype, readable=dtype in _READABLE)
