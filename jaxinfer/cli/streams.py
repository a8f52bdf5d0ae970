"""stdout and stderr that may be closed, full, or left by their reader.

Libraries print too (the help, a wrong option, a progress bar), so the streams are guarded and not each ``print``. What
stdout does not take ends the program, since the answer is lost. What stderr does not take is dropped: there is nobody
to tell, and the answer is not worse for it.
"""

import errno
import io
import os
import sys
from collections.abc import Buffer, Iterator
from contextlib import contextmanager
from typing import TextIO

from jaxinfer.cli.exits import CLOSED_PIPE, OUTPUT_FAILED, print_error


class StdoutError(Exception):
    """stdout does not take what is written. No OSError, since libraries have their own ways with those."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"stdout cannot be written: {cause.strerror}")
        self.reader_left = cause.errno == errno.EPIPE


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Around the whole program: replaces ``sys.stdout`` and ``sys.stderr``, and ends it where stdout fails.

    Raises:
        SystemExit: stdout is closed or full (``OUTPUT_FAILED``, with a line on stderr), or its reader left
            (``CLOSED_PIPE``).
    """
    if sys.stderr is None:  # it is closed; `print` would take None for stdout
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  for the rest of the program
    else:
        # By lines also into a file: a warning is to be seen when it is given, not when the program ends.
        sys.stderr = _text(_Stderr(2, "w", closefd=False), sys.stderr, "backslashreplace", line_buffering=True)
    if sys.stdout is None:
        print_error("stdout is closed")
        raise SystemExit(OUTPUT_FAILED)
    # A model may write what the terminal's encoding does not have.
    by_lines = getattr(sys.stdout, "line_buffering", False)
    sys.stdout = _text(_Stdout(1, "w", closefd=False), sys.stdout, "replace", line_buffering=by_lines)
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # here, where a failure is still told, and not when the interpreter ends
    except StdoutError as error:
        if error.reader_left:
            raise SystemExit(CLOSED_PIPE) from error
        print_error(str(error))
        raise SystemExit(OUTPUT_FAILED) from error


def _text(raw: io.FileIO, like: TextIO, errors: str, *, line_buffering: bool) -> io.TextIOWrapper:
    """A stream over ``raw`` with the encoding of ``like``."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=like.encoding,
        errors=errors,
        line_buffering=line_buffering,
        write_through=getattr(like, "write_through", False),
    )


class _Stdout(io.FileIO):
    """Fails once; the interpreter flushes on its way out what was not taken before."""

    _failed = False

    def write(self, data: Buffer, /) -> int:
        if self._failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self._failed = True
            raise StdoutError(error) from error


class _Stderr(io.FileIO):
    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes
