"""What both command lines refuse before anything runs: times that are none, and folders that take no file."""

import math
import tempfile
from argparse import ArgumentTypeError
from pathlib import Path


def seconds(text: str) -> float:
    """A time limit: finite and more than 0.

    Raises:
        ArgumentTypeError: it is neither.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"{text!r} is no number of seconds; it must be finite and more than 0")
    return value


def folder(text: str) -> Path:
    """A folder, which need not be there yet.

    Raises:
        ArgumentTypeError: the text is empty, which ``Path`` would take for the working directory.
    """
    if not text:
        raise ArgumentTypeError("'' names no folder")
    return Path(text)


def make_writable(path: Path) -> None:
    """Make the folder if need be, and try whether a file can be written there.

    Raises:
        ValueError: it cannot be made, or takes no file.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ValueError(f"no file can be written into the folder {path}: {error.strerror}") from error
