"""Writes a native checkpoint from weights that come one by one, and holds one part of the model at a time."""

from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from checkpoints.description import Description
from checkpoints.native.checksum import checksum
from checkpoints.native.folder import new_folder
from checkpoints.native.manifest import MANIFEST, WEIGHTS, Manifest, StoredFile, is_native, parts_of
from checkpoints.native.manifest_reading import read_manifest
from checkpoints.native.orbax_parts import save_part
from checkpoints.native.part_trees import flat_shapes, part_tree
from checkpoints.native.source_files import describe_source
from checkpoints.native.tokenizer_files import copy_tokenizer
from checkpoints.quantization import abstract_weights, num_bytes
from jaxinfer.config import ModelConfig
from jaxinfer.weights import Formats
from pallas_kernels.quantized_matmul import Weight

_PROGRAMS = ("jaxinfer", "jax", "orbax-checkpoint", "numpy")


class Described(Protocol):
    """A model without its weights; see ``Description``."""

    @property
    def config(self) -> ModelConfig: ...
    @property
    def eos_token_ids(self) -> tuple[int, ...]: ...
    @property
    def eos_spellings(self) -> tuple[str, ...]: ...


Progress = Callable[[int, int], None]
"""Called with the bytes of weights that are written and those that there will be."""


def write(
    destination: Path,
    weights: Iterable[tuple[str, Weight | Array]],
    *,
    description: Described,
    source: Path,
    formats: Formats,
    dtype: np.dtype | type,
    method: str | None,
    source_name: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> None:
    """Writes the folder ``destination``, which is there only once it is whole.

    Args:
        destination: a folder that does not exist, beside others; or, with ``overwrite``, a native checkpoint.
        weights: (name, weight) for each of ``weight_shapes(description.config)``, in that order, as the device holds
            it. The first is asked for only when the destination is known to be free.
        description: the model; the ``Checkpoint`` that is converted, for one.
        source: what is converted, whose tokenizer is copied too.
        formats: of the weights that are quantized.
        dtype: of the others, float32 or bfloat16.
        method: how the quantized ones were made of floats; None: they were not.
        source_name: what ``source`` was called, if not by its path.
        overwrite: whether a native checkpoint that lies there is replaced, once the new one is whole.
        progress: told of each part that is written.

    Raises:
        ValueError: the destination is taken or cannot be written, or a weight is not that of the model.
    """
    dtype = np.dtype(jnp.dtype(dtype))
    expected = abstract_weights(description.config, dtype, formats)
    with new_folder(destination, _unlisted if overwrite else lambda _: "exists already") as folder:
        origin = describe_source(source, str(source) if source_name is None else source_name)
        copy_tokenizer(source, folder)
        files = _stored_files(folder, folder)
        files |= _write_parts(folder, weights, expected, progress or (lambda done, total: None))
        manifest = Manifest(
            description=Description(description.config, description.eos_token_ids, description.eos_spellings),
            dtype=dtype.name,
            formats=formats,
            method=method,
            source=origin,
            versions={name: version(name) for name in _PROGRAMS},
            files=files,
        )
        (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
        read_manifest(folder)  # what was given may be nothing that can be read


def _write_parts(
    folder: Path, weights: Iterable[tuple[str, Weight | Array]], expected: dict[str, Any], progress: Progress
) -> dict[str, StoredFile]:
    """The files that were written. Their sums are taken part by part, while the bytes are still in memory."""
    files: dict[str, StoredFile] = {}
    ends = {names[-1]: part for part, names in parts_of(expected).items()}
    names = iter(expected)
    part: dict[str, Any] = {}
    done, total = 0, num_bytes(expected)
    for name, weight in weights:
        _check(name, weight, next(names, None), expected)
        part[name] = weight
        del weight
        if name in ends:
            save_part(folder / WEIGHTS / ends[name], part_tree(part))
            files |= _stored_files(folder, folder / WEIGHTS / ends[name])
            done += num_bytes(part)
            part.clear()
            progress(done, total)
    if (missing := next(names, None)) is not None:
        raise ValueError(f"the weights end before {missing}")
    return files


def _check(name: str, weight: Any, wanted: str | None, expected: dict[str, Any]) -> None:
    if name != wanted:
        raise ValueError(f"a weight is {name!r:.100}; the model has {wanted or 'no more'} there")
    found, needed = ((it.shape, flat_shapes(part_tree({name: it}))) for it in (weight, expected[name]))
    if found != needed:
        raise ValueError(f"{name} has shape and arrays {found}; in its format it has {needed}")


def _stored_files(root: Path, folder: Path) -> dict[str, StoredFile]:
    """What lies below ``folder``, by the path from ``root``."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): StoredFile(path.stat().st_size, checksum(path)) for path in paths}


def _unlisted(folder: Path) -> str | None:
    """Why a folder may not be replaced: it is no native checkpoint, or has files of somebody else."""
    if folder.is_symlink():
        return "is a link; give the folder that it names"
    if not folder.is_dir() or not is_native(folder):
        return "is no native checkpoint; nothing else is overwritten"
    try:
        listed = {*read_manifest(folder).files, MANIFEST}
    except ValueError as error:
        return f"is a damaged checkpoint, which is not overwritten: {error}"
    for path in sorted(folder.rglob("*")):
        if not path.is_dir() and path.relative_to(folder).as_posix() not in listed:
            return f"is not overwritten: it holds {path}, which is not the checkpoint's"
    return None
