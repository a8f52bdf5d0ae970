"""What the user of ``jaxinfer chat`` enters: messages and commands, from a terminal or from a pipe, one to a line.

A line is a command if its first word is a slash and letters, with or without hyphens between them, whatever is known by
that name: a slip in a command's name is to be told, and not answered by the model. So ``/etc is what?`` is one, and a
longer path such as ``/usr/bin`` is a message. A message of several lines stands between two of ``FENCE``; what is in
there is never a command. A terminal that knows bracketed paste also hands a pasted text over whole.
"""

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

import typer

from jaxinfer.cli.exits import USAGE, print_error

FENCE = '"""'
BYTE_ORDER_MARK = "\ufeff"
"""Some programs begin UTF-8 with it. It is none of the text."""

_SIGN, _SIGN_OF_MORE = "> ", ". "
_COMMAND = re.compile(r"/([a-z]+(?:-[a-z]+)*)(?:\s+(.*))?", re.DOTALL | re.IGNORECASE | re.ASCII)

ReadLine = Callable[[str], str]
"""Takes the sign that invites a person to type; returns a line without its end. Raises EOFError after the last, and
UnreadableEntry for a line that is no text."""


class UnreadableEntry(ValueError):
    """What was entered is neither a message nor a command; the next may be."""


@dataclass(frozen=True)
class Entry:
    """One thing that the user entered.

    Attributes:
        text: the message, or what follows the command.
        command: its name in small letters, without the slash; None for a message.
    """

    text: str
    command: str | None = None


def read_entry(read_line: ReadLine) -> Entry:
    """The next message or command.

    Raises:
        EOFError: there is none.
        UnreadableEntry: a line is no text, or a message that a fence begins has no end.
    """
    line = read_line(_SIGN)
    if line.startswith(FENCE):
        return Entry(_fenced(line.removeprefix(FENCE), read_line))
    command = _COMMAND.fullmatch(line.strip())
    return Entry(line) if command is None else Entry(command[2] or "", command[1].lower())


def _fenced(first: str, read_line: ReadLine) -> str:
    lines = [first]
    while not lines[-1].rstrip().endswith(FENCE):
        try:
            lines.append(read_line(_SIGN_OF_MORE))
        except EOFError:
            raise UnreadableEntry(f"the message that {FENCE} began has no end; {FENCE} ends it") from None
    return "\n".join(lines).rstrip().removesuffix(FENCE).strip("\n")


@dataclass(frozen=True)
class UserLines:
    """Where the user's lines come from.

    Attributes:
        read: the next one.
        typed: by a person at a terminal, who sees signs and may press Ctrl-C.
    """

    read: ReadLine
    typed: bool


def open_stdin() -> UserLines:
    """Stdin, read in the way that suits it.

    Raises:
        ValueError: it is closed.
    """
    if sys.stdin is None:
        raise ValueError("stdin is closed; messages are read from it")
    if not sys.stdin.isatty():
        return UserLines(_BytesReader(sys.stdin.buffer, shows_sign=False), typed=False)
    if not sys.stdout.isatty():  # `input` would write its sign there
        return UserLines(_BytesReader(sys.stdin.buffer, shows_sign=True), typed=True)
    with suppress(ImportError):  # a Python may lack it; it gives `input` its editing and the lines before
        import readline  # noqa: F401
    return UserLines(_read_edited, typed=True)


def _read_edited(sign: str) -> str:
    try:
        return input(sign)
    except EOFError:
        print(file=sys.stderr)  # the shell's own sign comes next
        raise
    except UnicodeDecodeError as error:
        raise UnreadableEntry(f"the line is not in the terminal's encoding: {error}") from error


class _BytesReader:
    """A ``ReadLine`` of UTF-8, which may begin with a byte order mark.

    Args:
        stream: where the lines come from.
        shows_sign: on stderr.
    """

    def __init__(self, stream: BinaryIO, *, shows_sign: bool) -> None:
        self._stream, self._shows_sign = stream, shows_sign
        self._mark = BYTE_ORDER_MARK

    def __call__(self, sign: str) -> str:
        if self._shows_sign:
            print(sign, end="", file=sys.stderr, flush=True)
        try:
            raw = self._stream.readline()
        except OSError as error:  # a descriptor that is only for writing, say
            print_error(f"stdin cannot be read: {error.strerror}")
            raise typer.Exit(USAGE) from error
        if not raw:
            raise EOFError
        mark, self._mark = self._mark, ""
        try:
            return raw.decode("utf-8").removeprefix(mark).removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            problem = f"a line of stdin is not UTF-8: its byte {error.start} is {raw[error.start]:#x}"
            raise UnreadableEntry(problem) from error
