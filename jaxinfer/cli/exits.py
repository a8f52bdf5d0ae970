"""How the program ends: exit codes, one line for what the user can mend, warnings in readable form.

Only values that came from the user are guarded. A ValueError out of the middle of a run is a fault of the program, and
its traceback is worth more than a tidy line.
"""

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import typer

PROMPT_FAILED = 1
USAGE = 2
OUTPUT_FAILED = 3
DEVICE_FAILED = 4
INTERRUPTED = 128 + 2
"""What a shell reports of a program that SIGINT ended."""
CLOSED_PIPE = 128 + 13
"""What a shell reports of a program that SIGPIPE ended, as other programs in front of ``| head`` are."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All that Unicode calls so, but the end of a line and the tabulator."""

_PACKAGES = ("jaxinfer", "checkpoints", "pallas_kernels")
_TELL_MORE = ("jaxinfer.conversion", "jaxinfer.limits", "jaxinfer.loading", "jaxinfer.server")


def print_error(message: str) -> None:
    """One error for the user, on stderr."""
    print(f"error: {_harmless(message)}", file=sys.stderr)


def print_text(text: str) -> None:
    """A piece of what a model wrote, on stdout and at once; with nothing in it that steers a terminal, if it is one.

    A model writes what its prompts and its files make it write. Unlike in a message, what is only not to be seen stays:
    some scripts and emoji are made of such letters.
    """
    shown = _CONTROLS.sub(lambda found: _spelled(found[0]), text) if sys.stdout.isatty() else text
    print(shown, end="", flush=True)


def _harmless(message: str) -> str:
    """With what steers a terminal spelled out: the message may quote a file, which comes from anyone."""
    return "".join(letter if letter.isprintable() or letter == "\n" else _spelled(letter) for letter in message)


def _spelled(letter: str) -> str:
    return ascii(letter)[1:-1]


@contextmanager
def ended_by(kind: type[Exception], exit_code: int) -> Iterator[None]:
    """An error of this kind in the block is told in one line and ends the program with this code."""
    try:
        yield
    except kind as error:
        print_error(str(error))
        raise typer.Exit(exit_code) from error


def usage_errors() -> AbstractContextManager[None]:
    """A ValueError of the block is a value that the user gave."""
    return ended_by(ValueError, USAGE)


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Around a whole command: each warning of the project, and how weights and cache are held, is a line on stderr."""
    handler = _LinesOnStderr(logging.INFO)
    levels = {logger: logger.level for logger in map(logging.getLogger, _TELL_MORE)}
    for logger in levels:
        logger.setLevel(logging.INFO)
    loggers = [logging.getLogger(name) for name in _PACKAGES]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False  # a library that is imported on the way may make root print what it is given
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.propagate = True
        for logger, level in levels.items():
            logger.setLevel(level)


class _LinesOnStderr(logging.Handler):
    """Writes to whatever stderr is at that moment: a live progress bar replaces it to keep lines above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        print(level + _harmless(record.getMessage()), file=sys.stderr)
