"""Which files were converted: their sizes and the sums by which anybody can tell them again."""

import hashlib
from pathlib import Path

from checkpoints.checkpoint import detect_layout, weight_files
from checkpoints.native.manifest import Source, SourceFile


def describe_source(path: Path, name: str) -> Source:
    """What the manifest says of the checkpoint at ``path``.

    Every byte of its weights is read for the sums, at about the speed of the disk.

    Raises:
        ValueError: no model lies there, or a file cannot be read.
    """
    folder = path if path.is_dir() else path.parent
    files = {file.relative_to(folder).as_posix(): _describe(file) for file in weight_files(path)}
    return Source(name, detect_layout(path), files)


def _describe(path: Path) -> SourceFile:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return SourceFile(file.tell(), digest)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
