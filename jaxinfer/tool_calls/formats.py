"""What a format of tool calls is, and how its beginning is found in text that still grows."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxinfer.outputs import ToolCall


@dataclass(frozen=True)
class Opening:
    """Where in an answer a call begins, or may be beginning.

    Attributes:
        start: so many characters are text for certain; those behind them are, or may turn out to be, of a call.
        begun: whether a call has begun there. If not, more text decides.
    """

    start: int
    begun: bool


@dataclass(frozen=True)
class Parsed:
    """What was read from the first call on.

    Attributes:
        calls: in their order; none where the first one is broken.
        text: what is not of a call, as it was written, markers included; "" where that is only space.
    """

    calls: tuple[ToolCall, ...]
    text: str


@dataclass(frozen=True)
class ToolCallFormat:
    """One family's form of calls.

    Attributes:
        name: for people.
        markers: spellings of the tokens that structure a call. In most vocabularies they are special tokens and so have
            no text of their own; ``find_opening`` and ``parse`` see them spelled.
        find_opening: from the text that has not been given out yet, and whether that is the answer's very beginning.
        parse: from all that was written from the opening on.
    """

    name: str
    markers: tuple[str, ...]
    find_opening: Callable[[str, bool], Opening]
    parse: Callable[[str], Parsed]


def find_marker(text: str, marker: str) -> Opening:
    """The first ``marker`` in ``text``, or an end of ``text`` that may be its beginning.

    A newline before it belongs to it: templates write one between the assistant's words and its call.
    """
    start = text.find(marker)
    begun = start >= 0
    if not begun:
        start = len(text) - _overlap(text, marker)
    return Opening(start - text[:start].endswith("\n"), begun)


def _overlap(text: str, marker: str) -> int:
    """Length of the longest end of ``text`` that is a beginning of ``marker``."""
    longest = min(len(text), len(marker) - 1)
    return next((length for length in range(longest, 0, -1) if text.endswith(marker[:length])), 0)
