"""A progress bar on stderr, for people only: nothing is drawn where stderr is not a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class ProgressBar:
    """A context in which a bar shows how many of a number of things are done; it vanishes at the end.

    Args:
        what: the word before the bar.
    """

    def __init__(self, what: str) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,  # rich would send it to stderr
        )
        self._drawn = console.is_interactive
        self._task = self._progress.add_task(what, total=None)

    def __enter__(self) -> Self:
        if self._drawn:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._drawn:
            self._progress.stop()

    def update(self, done: int, total: int) -> None:
        """Show ``done`` of ``total``."""
        self._progress.update(self._task, completed=done, total=total)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """A while without the bar, to write on stdout, which may be the same terminal."""
        self.__exit__(None, None, None)
        yield
        self.__enter__()
