"""Text that the user has in a file, or in what stdin gives."""

import sys
from collections.abc import Callable
from pathlib import Path

from jaxinfer.cli.chat_entries import BYTE_ORDER_MARK

_STDIN = "-"
_FILE_SIGN = "@"


def read_text(name: str, read: Callable[[], bytes]) -> str:
    """What ``read`` gives, as UTF-8 without the mark that some programs begin it with.

    Args:
        name: of the file, and what it is for, as a message calls it.
        read: its bytes.

    Raises:
        ValueError: it cannot be read, or is not UTF-8.
    """
    try:
        raw = read()
        return raw.decode("utf-8").removeprefix(BYTE_ORDER_MARK)
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8: byte {error.start} is {raw[error.start]:#x}") from error


def shown_name(file: str) -> str:
    """The name of a file that the user gave, ``-`` being stdin."""
    return "stdin" if file == _STDIN else file


def read_file_or_stdin(option: str, what: str, file: str) -> str:
    """The text in a file, or in all of stdin if it is ``-``.

    Args:
        option: with which the file was given.
        what: it is for, as a message calls it.
        file: its name.

    Raises:
        ValueError: as ``read_text``; the name is empty, or stdin is closed.
    """
    if not file:
        raise ValueError(f"{option} has an empty name; give a file, or - for stdin")
    if file == _STDIN and sys.stdin is None:
        raise ValueError(f"{option} is -, and stdin is closed")
    read = sys.stdin.buffer.read if file == _STDIN else Path(file).read_bytes
    return read_text(f"{what} {shown_name(file)}", read)


def text_or_file(option: str, value: str | None) -> str | None:
    """What an option says: the text itself, or that of the file whose name follows ``@``; None for None.

    Raises:
        ValueError: as ``read_text``, or no name follows.
    """
    if value is None or not value.startswith(_FILE_SIGN):
        return value
    file = value.removeprefix(_FILE_SIGN)
    if not file:
        raise ValueError(f"{option} is {_FILE_SIGN!r}; the name of a file follows it")
    return read_text(f"the file {file} of {option}", Path(file).read_bytes)
