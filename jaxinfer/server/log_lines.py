"""What a running server says on stderr: lines with a time, which quote nothing of what clients sent unasked."""

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("jaxinfer", "uvicorn")
_TELLS_MORE = "jaxinfer.server"


@contextmanager
def log_lines(*, with_messages: bool) -> Iterator[None]:
    """While the block runs, stderr has the log.

    Args:
        with_messages: whether tracebacks end with what the errors say. That may quote a prompt or an answer; without
            it there are the places in the code and the kinds of the errors.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LineFormatter(with_messages=with_messages))
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    telling_more = logging.getLogger(_TELLS_MORE)
    level = telling_more.level
    telling_more.setLevel(logging.INFO)
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False  # else a library that makes root print gives each line twice
    try:
        yield
    finally:
        telling_more.setLevel(level)
        for logger in loggers:
            logger.removeHandler(handler)
            logger.propagate = True


class _LineFormatter(logging.Formatter):
    def __init__(self, *, with_messages: bool) -> None:
        super().__init__()
        self._with_messages = with_messages

    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record)} {record.levelname.lower()}: {_on_one_line(record.getMessage())}"
        fault = record.exc_info[1] if record.exc_info else None
        return line if fault is None else "\n".join([line, *self._trace(fault)])

    def _trace(self, fault: BaseException) -> list[str]:
        """The fault and what led to it, the newest first."""
        lines: list[str] = []
        cause: BaseException | None = fault
        while cause is not None:
            message = f": {_on_one_line(str(cause))}" if self._with_messages else ""
            lines += [f"{type(cause).__name__}{message}", *map(str.rstrip, traceback.format_tb(cause.__traceback__))]
            cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
        return lines


def _on_one_line(message: str) -> str:
    """With all that would steer a terminal, or begin a line of its own, spelled out."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in message)
