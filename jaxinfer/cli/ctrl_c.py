"""Ctrl-C in a conversation: it ends a wait of the program, and never the program.

Elsewhere in the command line it ends the program at once (``jaxinfer.__main__``). Here that would lose the
conversation, so KeyboardInterrupt comes up in the two places that wait for long, reading a line and drawing tokens, and
once in each of them: the second of two would meet the handling of the first.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class CtrlC:
    """Takes SIGINT while it is installed; otherwise ``interruptible`` only calls what it is given."""

    def __init__(self) -> None:
        self._pending = self._raising = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Around a conversation. Where the program was started to ignore Ctrl-C, it goes on to."""
        before, tell_dropped = signal.getsignal(signal.SIGINT), sys.unraisablehook
        if before is signal.SIG_IGN:
            yield
            return

        def tell_but_no_interrupt(dropped: "sys.UnraisableHookArgs") -> None:
            if not issubclass(dropped.exc_type, KeyboardInterrupt):  # that one is not lost, see `interruptible`
                tell_dropped(dropped)

        sys.unraisablehook = tell_but_no_interrupt
        signal.signal(signal.SIGINT, self._take)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            sys.unraisablehook = tell_dropped

    def interruptible[T](self, wait: Callable[[], T]) -> T:
        """The result of ``wait``.

        Raises:
            KeyboardInterrupt: Ctrl-C came during the call, or since the call before. The latter because Python drops an
                exception that comes up in a callback of its garbage collector: then the next call raises it, and
                nothing is told of the dropped one.
        """
        try:
            self._raising = True
            if self._pending:
                raise KeyboardInterrupt
            return wait()
        except KeyboardInterrupt:
            self._pending = False
            raise
        except SystemError as error:
            # What Python makes of a second Ctrl-C where C code looks for one with the exception of the first still set,
            # as `input` does.
            if not isinstance(error.__cause__, KeyboardInterrupt):
                raise
            self._pending = False
            raise KeyboardInterrupt from error
        finally:
            self._raising = False

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._pending = True
        if self._raising:
            self._raising = False
            raise KeyboardInterrupt
