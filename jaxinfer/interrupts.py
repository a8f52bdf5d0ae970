"""Ctrl-C and other signals held back over the few lines that must not be cut in two."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType

_Held = list[tuple[Callable[[int, FrameType | None], object], int, FrameType | None]]

_SIGNALS = tuple(signal.valid_signals())
"""Asked for once: to ask takes longer than all else here."""


@contextmanager
def interrupts_held() -> Iterator[None]:
    """A signal that comes inside the block and has a handler in Python takes effect at the block's end.

    Python runs handlers, and raises what they raise, between any two steps of the interpreter: also between the return
    of a call that consumed a donated array and the assignment of the array that replaces it. Ctrl-C raises
    KeyboardInterrupt so, and SIGALRM the errors of timers. To be used around what is short. Only the main thread gets
    signals, so anywhere else this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: _Held = []
    with ExitStack() as stack:  # in which each handler is put back, whatever the one before raises
        stack.callback(_run, held)
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                stack.callback(signal.signal, number, handler)
                signal.signal(number, partial(_hold, held, handler))
        yield


def _hold(
    held: _Held, handler: Callable[[int, FrameType | None], object], number: int, frame: FrameType | None
) -> None:
    if all(handler is not other for other, _, _ in held):  # twice is no more than once, as for a blocked signal
        held.append((handler, number, frame))


def _run(held: _Held) -> None:
    with ExitStack() as stack:
        for handler, number, frame in reversed(held):
            stack.callback(handler, number, frame)
