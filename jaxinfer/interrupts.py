"""Ctrl-C held back over the few lines that must not be cut in two."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_held() -> Iterator[None]:
    """A SIGINT that comes inside the block takes effect at its end.

    Python raises KeyboardInterrupt between any two steps of the interpreter: also between the return of a call that
    consumed a donated array and the assignment of the array that replaces it. To be used around what is short.
    Only the main thread gets signals, so anywhere else this does nothing.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: held.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held:
            handler(*held[0])
