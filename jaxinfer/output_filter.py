"""A hook that sees all text before anyone else does, and may change it, hold it back, or end the request."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class FilteredText:
    """What a filter lets through.

    Attributes:
        text: to be released now.
        ends: end the request here, with the finish reason ``content_filter``; what was held back is dropped.
    """

    text: str
    ends: bool = False


class OutputFilter(Protocol):
    """Guards the text of one sequence; it is asked once for each piece of text, in order, and may keep state.

    It sees what the model writes, calls of tools included, and not what a stop string has cut off. If it raises, the
    request ends with an error and the text is not released.
    """

    def push(self, text: str) -> FilteredText:
        """What is to be released now that the model has written ``text``: less than that, if some must be held back."""

    def finish(self) -> FilteredText:
        """The rest, at the end of the text."""


OutputFilterFactory = Callable[[], OutputFilter]
"""Makes the filter of a sequence."""
