"""Reads an answer as it grows: gives out what is text and finds the calls."""

import re
from collections.abc import Callable

from jaxinfer.outputs import ToolCall
from jaxinfer.tool_calls.candidate import Candidate
from jaxinfer.tool_calls.formats import CODE_CLASS, CODES, MAX_SPACE, ToolCallFormat

_AT_CODES = re.compile(f"(?={CODE_CLASS})")
_NO_WORDS = re.compile(rf"(?:[\s\[\],]|{CODE_CLASS})*+")


class CallReader:
    """Takes coded text (see ``formats``) and gives coded text out.

    What is not a whole call is text, and all other calls count: of several, of a list, behind a marker that was only
    spoken of. Text is held back while it may become a call, and from the first whole call on, since only at the end it
    is known whether the model ended its answer itself. The time is linear in the text, see ``json_scan``.

    Attributes:
        calls: those that were found so far.
    """

    def __init__(self, tool_format: ToolCallFormat, spelled: Callable[[str], str], *, in_thought: bool = False) -> None:
        """``spelled`` spells the markers of a coded text; ``in_thought``: the prompt has begun a thought."""
        self.calls: list[ToolCall] = []
        self._ids: set[str] = set()
        self._format = tool_format
        self._spelled = spelled
        self._in_thought = in_thought
        self._at_beginning = True  # nothing but space so far
        self._may_be_bare = tool_format.is_bare  # a call without a marker may begin here
        self._candidate: Candidate | None = None
        self._undecided = ""  # space that may belong to a call
        self._released: list[str] = []
        self._all: list[str] = []  # from the first call on, all that was written,
        self._gaps: list[list[str]] = []  # and what is of no call: in each, and behind each

    def push(self, text: str) -> str:
        """What is text for certain now."""
        self._read(text)
        return self._take_released()

    def finish(self, *, is_whole: bool) -> str:
        """All that was held back; to be called once. Unless the answer ``is_whole``, nothing in it is a call."""
        while self._candidate is not None:
            self._read(self._close())
        self._put(self._undecided)
        if is_whole:
            self._released += map(self._without_closing, self._gaps)
        else:
            self._released += self._all
            self.calls = []
        return self._take_released()

    def _take_released(self) -> str:
        text = "".join(self._released)
        self._released.clear()
        return text

    def _read(self, text: str) -> None:
        """Piece by piece, each with one code at most, which is its first character: so no rest is copied often."""
        pieces = _AT_CODES.split(text)[::-1]
        while pieces:
            piece = pieces.pop()
            if self._candidate is None:
                piece = self._search(piece)
            if self._candidate is not None and piece and self._candidate.push(piece):
                pieces += _AT_CODES.split(self._close())[::-1]

    def _close(self) -> str:
        """Ends the candidate; what is to be searched anew."""
        candidate, self._candidate = self._candidate, None
        assert candidate is not None
        reading = candidate.read(self._spelled, self._ids)
        if not reading.calls:
            self._put(reading.leftover)
            self._may_be_bare = False
            return reading.rest
        self.calls += reading.calls
        self._all.append(reading.written)
        self._gaps += [[] if _NO_WORDS.fullmatch(reading.leftover) else [reading.leftover], []]
        self._may_be_bare = self._format.is_bare
        return reading.rest

    def _search(self, piece: str) -> str:
        """Takes ``piece``, or what of it comes before a candidate, which it opens; what is the candidate's."""
        code = piece[: piece[:1] in CODES]
        if code == CODES[0] and not self._in_thought:
            self._open(code)
            return piece[1:]
        self._note_thought(code, piece)
        text, self._undecided = self._undecided + piece, ""
        if self._may_be_bare:
            blank = self._blank_beginning(text)
            self._may_be_bare = blank == len(text) and (bool(self.calls) or blank <= MAX_SPACE)
            if text.startswith("{", blank) and (self.calls or blank <= MAX_SPACE):
                self._undecided = text[:blank]
                self._open("")
                return text[blank:]
            if self._may_be_bare and not self.calls:
                self._undecided = text
                return ""
        self._hold_newline(text)
        return ""

    def _open(self, code: str) -> None:
        """Opens a candidate. A newline before it goes with it, since templates write one before a call."""
        space, self._undecided = self._undecided, ""
        with_it = len(space) if not code else int(space.endswith("\n"))
        self._put(space[: len(space) - with_it])
        self._candidate = Candidate(self._format, space[len(space) - with_it :] + code, is_marked=bool(code))
        self._at_beginning = False

    def _note_thought(self, code: str, piece: str) -> None:
        """A thought stands at the beginning of an answer only; elsewhere its markers are words."""
        if self._format.thought is not None and code:
            begin, end = self._format.thought
            self._in_thought = (self._in_thought and code != end) or (code == begin and self._at_beginning)
        self._at_beginning = self._at_beginning and not code and not piece.strip()

    def _blank_beginning(self, text: str) -> int:
        filler = self._format.filler.match(text)
        return 0 if filler is None else filler.end()

    def _hold_newline(self, text: str) -> None:
        is_held = text.endswith("\n")
        self._undecided = "\n" * is_held
        self._put(text[: len(text) - is_held])

    def _put(self, text: str) -> None:
        """``text`` is of no call."""
        if self.calls:
            self._all.append(text)
            self._gaps[-1].append(text)
        else:
            self._released.append(text)

    def _without_closing(self, gap: list[str]) -> str:
        text = "".join(gap)
        closing = self._format.closing.match(text)
        text = text if closing is None else text[closing.end() :]
        return "" if self._format.filler.fullmatch(text) else text
