"""Turns what the ``tokenizers`` library raises into ``ValueError``: the one place that knows how it fails.

It raises bare ``Exception`` for what it expects, and for what it does not (its own code has panicked) a class that is
no ``Exception`` at all and has no public name. Neither tells a caller that this text or this file is at fault.
"""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def library_errors(what_failed: str) -> Iterator[None]:
    """Around calls of the library: ValueError says ``what_failed`` and in what words the library said so.

    What is meant for the program passes: ``KeyboardInterrupt``, ``SystemExit`` and their like.
    """
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and not _is_panic(error):
            raise
        raise ValueError(f"{what_failed}: {error}") from error


def _is_panic(error: BaseException) -> bool:
    """By name, since the class is made anew in each library that is written with pyo3."""
    return (type(error).__module__, type(error).__name__) == ("pyo3_runtime", "PanicException")
