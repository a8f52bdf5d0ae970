"""The program: what ``jaxinfer`` and ``python -m jaxinfer`` run.

It stands outside the package ``jaxinfer.cli``, whose imports take a while, so that Ctrl-C is in hand before them.
"""

import os
import signal
from contextlib import suppress
from types import FrameType

_INTERRUPTED = 128 + 2
"""What a shell reports of a program that SIGINT ended."""
_SHOW_CURSOR = b"\x1b[?25h"
"""To a terminal; a progress bar hides the cursor."""


def main() -> None:
    """Run the command line; it ends in ``SystemExit``."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else who started it wants Ctrl-C ignored
        signal.signal(signal.SIGINT, _end_at_once)
    from jaxinfer.cli import run

    run()


def _end_at_once(number: int, frame: FrameType | None) -> None:
    """Ctrl-C. Nothing needs tidying, for all that was written is flushed.

    An exception would do less: it may come up inside an import, or in a callback of the garbage collector, which drops
    it, and the second of two would meet the handling of the first.
    """
    with suppress(OSError):  # not `print`: the signal may have come in the middle of one
        os.write(2, (_SHOW_CURSOR if os.isatty(2) else b"") + b"\ninterrupted\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
