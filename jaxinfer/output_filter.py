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

    It sees what the model writes, calls of tools included, and not what a stop string has cut off. After it has ended
    the request it is asked no more. If it raises, the request ends with an error and the text is not released.
    """

    def push(self, text: str) -> FilteredText:
        """What is to be released now that the model has written ``text``, which is not empty.

        That may be less than ``text``, if some must be held back, or more, if what was held back comes with it.
        """

    def settle(self) -> FilteredText:
        """What is held back, to be released now: nothing that comes later is connected with it.

        It is called at the end of the text; and, where calls of tools are read, at each special token of their form
        that has no text of its own, since text before such a token must not come after it.
        """


OutputFilterFactory = Callable[[], OutputFilter]
"""Makes the filter of a sequence."""
