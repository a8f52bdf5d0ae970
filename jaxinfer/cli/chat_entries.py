"""What the user of ``jaxinfer chat`` enters: messages and commands, from a terminal or from a pipe, one to a line.

A message of several lines stands between two of ``FENCE``; what is in there is never a command. A terminal that knows
bracketed paste also hands a pasted text over whole.
"""

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

FENCE = '"""'

_SIGN, _SIGN_OF_MORE = "> ", ". "
_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)
"""A path such as /usr/bin is none."""

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
        command: its name without the slash; None for a message.
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
    return Entry(line) if command is None else Entry(command[2] or "", command[1])


def _fenced(first: str, read_line: ReadLine) -> str:
    lines = [first]
    while not lines[-1].rstrip().endswith(FENCE):
        try:
            lines.append(read_line(_SIGN_OF_MORE))
        except EOFError:
            raise UnreadableEntry(f"the message that {FENCE} began has no end; {FENCE} ends it") from None
    return "\n".join(lines).rstrip().removesuffix(FENCE).strip("\n")


def line_reader() -> ReadLine:
    """Reads stdin in the way that suits it.

    Raises:
        ValueError: stdin is closed.
    """
    if sys.stdin is None:
        raise ValueError("stdin is closed; messages are read from it")
    if not sys.stdin.isatty():
        return lambda sign: _read_bytes()
    if not sys.stdout.isatty():
        return _read_with_sign_on_stderr
    with suppress(ImportError):  # a Python may lack it; it gives `input` its editing and the lines before
        import readline  # noqa: F401
    return _read_edited


def _read_edited(sign: str) -> str:
    try:
        return input(sign)
    except EOFError:
        print(file=sys.stderr)  # the shell's own sign comes next
        raise
    except UnicodeDecodeError as error:
        raise UnreadableEntry(f"the line is not in the terminal's encoding: {error}") from error


def _read_with_sign_on_stderr(sign: str) -> str:
    print(sign, end="", file=sys.stderr, flush=True)
    return _read_bytes()


def _read_bytes() -> str:
    raw = sys.stdin.buffer.readline()
    if not raw:
        raise EOFError
    try:
        return raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        problem = f"a line of stdin is not UTF-8: its byte {error.start} is {raw[error.start]:#x}"
        raise UnreadableEntry(problem) from error
