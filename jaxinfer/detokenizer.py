"""The text of one request, as its tokens come: each running request owns one of these, on the engine's edge."""

import reprlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Literal, Protocol, Self

from jaxinfer.output_filter import FilteredText, OutputFilter
from jaxinfer.outputs import ToolCall
from jaxinfer.stop_strings import StopSearch, StopStrings
from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.tokenizers.token_ids import checked_token_ids


@dataclass(frozen=True)
class TextEnd:
    """Why a text ends although tokens go on.

    Attributes:
        reason: ``stop`` for a stop string, ``content_filter`` for an ``OutputFilter``.
        stop_string: the one that was found.
    """

    reason: Literal["stop", "content_filter"]
    stop_string: str | None = None


class Detokenizer(Protocol):
    """What the engine asks of whatever makes the text of a request."""

    @property
    def ended(self) -> TextEnd | None:
        """Why nothing more is to come, whatever tokens do; None while that is open."""

    @property
    def text(self) -> str:
        """All deltas so far, joined."""

    @property
    def tool_calls(self) -> Sequence[ToolCall]:
        """The calls that the request has made, known after ``finish``."""

    def push(self, token_ids: Sequence[int]) -> str:
        """The delta that these tokens bring; "" once the text has ``ended``.

        Raises:
            ValueError: a token id is negative or no whole number; then none of ``token_ids`` has been taken.
            Exception: whatever an ``OutputFilter`` raises; the text is of no more use then.
        """

    def finish(self, *, is_whole: bool) -> str:
        """The last delta: what was held back. To be called once, at the end. The text may be found to end in it.

        Args:
            is_whole: the model ended its answer itself, and was not cut off. Where the text has ``ended``, that
                decides instead: a stop string is an end like any other, and a filter cuts off.
        """

    def fresh(self, output_filter: OutputFilter | None) -> Self:
        """One for another answer to the same prompt, which is not read again; to be asked for before any ``push``."""


class TextPieces:
    """A text that grows at its end, kept in pieces: to add one copies that one only, to read the whole copies it."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def add(self, piece: str) -> str:
        """``piece``, taken."""
        if piece:
            self._pieces.append(piece)
        return piece

    def joined(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return "".join(self._pieces)


class OutputStream:
    """Turns output tokens into text that never has to be taken back, and keeps none of it.

    With P the prompt and O all tokens pushed, the law is: what ``push`` and in the end ``settle`` give, joined, is
    ``decode(P + O)`` without the longest prefix that it shares with ``decode(P)``. So prompt and text read on from one
    another: the text keeps the space before its first word where the prompt has text, and has none after BOS alone. A
    prompt that ends inside a character leaves the whole character to the text.

    An id without a token (see ``jaxinfer.tokenizers.protocol``) gives no text, in the prompt as in the output.

    What is given is settled: no later token changes it. What a token costs does not depend on how many came before it.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int] = ()) -> None:
        """Raises ValueError for a negative token id, or one that is no whole number."""
        self._stream = tokenizer.text_stream(prompt_token_ids)
        self._shown_by_prompt = self._stream.pending()

    def push(self, token_id: int) -> str:
        """The text that this token settles, often "" while a character is incomplete. ValueError for what is no id."""
        return self._new(self._stream.push(token_id))

    def settle(self) -> str:
        """The text that was held back, as it reads now: what comes later is read as not connected with it."""
        return self._new(self._stream.settle())

    def fork(self) -> "OutputStream":
        """Another one that goes on from here."""
        other = copy(self)
        other._stream = self._stream.fork()
        return other

    def _new(self, text: str) -> str:
        """Drops what the prompt's own text has shown already: an incomplete end that the output did not change."""
        if text and self._shown_by_prompt:
            shared = _shared_prefix_len(text, self._shown_by_prompt)
            self._shown_by_prompt = self._shown_by_prompt[shared:] if shared == len(text) else ""
            text = text[shared:]
        return text


class GuardedStream:
    """An ``OutputStream`` up to a stop string, and as far as a filter lets it through.

    Stop strings come first: what they cut off is not written, so the filter does not see it.

    Attributes:
        ended: why the text is over; None while it is not. After that everything gives "".
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_token_ids: Sequence[int],
        stops: StopStrings | None,
        output_filter: OutputFilter | None,
    ) -> None:
        """Raises ValueError for a negative token id, or one that is no whole number."""
        self.ended: TextEnd | None = None
        self._stream = OutputStream(tokenizer, prompt_token_ids)
        stops = StopStrings(()) if stops is None else stops
        self._search, self._filter = StopSearch(stops), output_filter
        self._is_open = stops.is_empty and output_filter is None

    def push(self, token_id: int) -> str:
        """The text that this token releases. ValueError for what is no id."""
        text = self._stream.push(token_id)
        return text if self._is_open else self._guarded(self._search.push(text), settles=False)

    def break_off(self) -> str:
        """For a token without text, across which text is not connected: what was held back before it."""
        text = self.settle()
        self._search.push("")
        return text

    def settle(self) -> str:
        """The text that was held back: what comes later is not connected with it."""
        return self._guarded(self._search.settle(self._stream.settle()), settles=True)

    def fresh(self, output_filter: OutputFilter | None) -> "GuardedStream":
        """One for another answer to the same prompt; to be asked for before any ``push``."""
        other = copy(self)
        other._stream, other._search, other._filter = self._stream.fork(), copy(self._search), output_filter
        other._is_open = self._is_open and output_filter is None
        return other

    def _guarded(self, text: str, *, settles: bool) -> str:
        if self.ended is not None:
            return ""
        if self._search.found is not None:
            self.ended, settles = TextEnd("stop", self._search.found), True
        if self._filter is None:
            return text
        released = _checked(self._filter.push(text)) if text else FilteredText("")
        if settles and not released.ends:
            rest = _checked(self._filter.settle())
            released = FilteredText(released.text + rest.text, rest.ends)
        if released.ends:
            self.ended = TextEnd("content_filter")
        return released.text


class IncrementalDetokenizer:
    """A ``Detokenizer`` that gives an answer's text as it is, by the law of ``OutputStream``; it finds no calls."""

    tool_calls: tuple[ToolCall, ...] = ()

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_token_ids: Sequence[int] = (),
        *,
        stops: StopStrings | None = None,
        output_filter: OutputFilter | None = None,
    ) -> None:
        """Raises ValueError for a negative token id, or one that is no whole number."""
        self._stream = GuardedStream(tokenizer, prompt_token_ids, stops, output_filter)
        self._text = TextPieces()

    @property
    def ended(self) -> TextEnd | None:
        return self._stream.ended

    @property
    def text(self) -> str:
        return self._text.joined()

    def push(self, token_ids: Sequence[int]) -> str:
        return self._text.add("".join(map(self._stream.push, checked_token_ids(token_ids))))

    def finish(self, *, is_whole: bool = True) -> str:
        """See ``Detokenizer``; whether the answer ``is_whole`` makes no difference."""
        return self._text.add(self._stream.settle())

    def fresh(self, output_filter: OutputFilter | None) -> Self:
        other = copy(self)
        other._stream, other._text = self._stream.fresh(output_filter), TextPieces()
        return other


def _checked(filtered: object) -> FilteredText:
    if not isinstance(filtered, FilteredText):
        raise ValueError(f"the output filter gave {reprlib.repr(filtered)}; it must give a FilteredText")
    return filtered


def _shared_prefix_len(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
