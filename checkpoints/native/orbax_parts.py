"""One part of a model as an orbax checkpoint of its own: a tree of arrays out, the same tree in.

The stable interface of orbax, and few of its options. OCDBT has few files, the same number however many arrays there
are. Nothing is compressed: numbers of 4 and 8 bits do not get smaller, and zstd makes writing four times as slow. An
array is kept in pieces, which are read side by side, and of which a device of a mesh reads its own alone. Orbax finds
no arrays in a folder whose path is relative, so it is only ever told absolute ones.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from jaxtyping import Array

from checkpoints.native.part_trees import Tree

_PIECE = 2**24
"""Bytes; twice as fast to read as whole arrays of 60 MB, and as fast to write."""


def save_part(folder: Path, tree: Tree) -> None:
    """Writes the arrays into the new folder ``folder``, whose parent is made.

    Raises:
        ValueError: they could not be written; the message names the folder.
    """
    arguments = jax.tree.map(lambda array: ocp.SaveArgs(chunk_byte_size=_piece(array)), tree)
    try:
        with _quiet(), _checkpointer() as checkpointer:
            checkpointer.save(folder.absolute(), tree, save_args=arguments)
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder} could not be written: {error}") from error


def part_shapes(folder: Path) -> Tree:
    """Of every array that the part holds shape and dtype, as a ``jax.ShapeDtypeStruct``.

    Raises:
        ValueError: this is no part, or a damaged one; the message names the folder.
    """
    with _reading(folder), _checkpointer() as checkpointer:
        found = checkpointer.metadata(folder.absolute()).item_metadata
        if found is None:  # orbax has only logged why
            raise ValueError("what orbax wrote of its arrays is missing or damaged")
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), found.tree)


def load_part(folder: Path, shardings: Tree) -> Tree:
    """The arrays of a part, each where ``shardings``, a tree of the same form, wants it.

    Raises:
        ValueError: the part is damaged; the message names the folder.
    """
    arguments = jax.tree.map(lambda sharding: ocp.ArrayRestoreArgs(sharding=sharding), shardings)
    with _reading(folder), _checkpointer() as checkpointer:
        return checkpointer.restore(folder.absolute(), restore_args=arguments)


def _piece(array: Array) -> int | None:
    """None: whole. Of an odd number of rows, as of a vocabulary of 32,003, orbax makes a piece of each."""
    return _PIECE if array.shape[0] % 8 == 0 else None


def _checkpointer() -> Any:
    return ocp.PyTreeCheckpointer(use_ocdbt=True, use_compression=False)


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Whatever orbax makes of damaged files, which depends on the byte, is a ValueError."""
    try:
        with _quiet():
            yield
    except Exception as error:
        text = str(error).partition("\n")[0]
        raise ValueError(f"{folder}: this part of the checkpoint cannot be read: {text:.300}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without orbax's lines in the log: they tell of its own steps, and what fails is raised.

    Each use has a filter of its own, as several threads may read at once.
    """
    logger, nothing = logging.getLogger("absl"), _Nothing()
    logger.addFilter(nothing)
    try:
        yield
    finally:
        logger.removeFilter(nothing)


class _Nothing(logging.Filter):
    """Lets no line pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        return False
