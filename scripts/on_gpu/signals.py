"""What asks a process to end: Ctrl-C, ``kill``, and a terminal that closes. Nobody is to read a traceback then."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn


@dataclass
class Stop:
    """Whether this process was asked to end. It is looked at from time to time, so that nothing is left half done.

    Attributes:
        number: of the first signal that did so; None where none did.
    """

    number: int | None = None

    def listen(self) -> None:
        """From now on, signals do nothing but to be noted here."""
        _handle(self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number


def end_at_once(message: str) -> None:
    """From now on, a signal ends the process with this line, without waiting for what its threads compile."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        print(f"{name(number)}: {message}", file=sys.stderr, flush=True)
        os._exit(exit_status(number))

    _handle(end)


def exit_status(number: int) -> int:
    """Of a process that a signal ended, as shells have it."""
    return 128 + number


def name(number: int) -> str:
    """Such as ``SIGINT``."""
    return signal.Signals(number).name


def _handle(handler: Callable[[int, FrameType | None], None]) -> None:
    """Other than a signal that this process was started to ignore, as under ``nohup``."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
