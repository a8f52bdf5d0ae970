"""The text of a request that may call tools: its calls are kept out of it."""

from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import Self

from jaxinfer.detokenizer import GuardedStream, TextEnd, TextPieces
from jaxinfer.output_filter import OutputFilter
from jaxinfer.outputs import ToolCall
from jaxinfer.stop_strings import StopStrings
from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.tokenizers.token_ids import checked_token_ids
from jaxinfer.tool_calls.formats import CODES, ToolCallFormat
from jaxinfer.tool_calls.markers import MarkerCoder
from jaxinfer.tool_calls.reader import CallReader

_THOUGHT_TAIL = 16  # tokens at the end of a prompt among which the beginning of a thought would be: a marker, a newline


class ToolCallDetokenizer:
    """A ``Detokenizer`` that gives out no text that may be of a call, until it is known to be of none.

    The law: all deltas joined are ``text``, and ``text`` is what ``IncrementalDetokenizer`` gives, without the calls.
    (One thing differs: a marker that has no text ends a character before it that is not whole.) What is no whole call
    is text, whatever stands before and behind it. Space around a call, and what separates it from the next, go with it.
    The work for a token does not grow with how many came before it: it is bounded, but where text turns out to be no
    call, which is then read once or twice more.

    A stop string or a filter ends what the model writes, calls included. Neither reads on across a marker without text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_token_ids: Sequence[int],
        tool_format: ToolCallFormat,
        *,
        stops: StopStrings | None = None,
        output_filter: OutputFilter | None = None,
    ) -> None:
        """Raises ValueError for a negative token id, or one that is no whole number."""
        self._stream = GuardedStream(tokenizer, prompt_token_ids, stops, output_filter)
        self._coder = MarkerCoder(tokenizer, tool_format.markers)
        in_thought = _in_thought(tokenizer, prompt_token_ids, tool_format)
        self._new_reader = partial(CallReader, tool_format, self._coder.spelled, in_thought=in_thought)
        self._reader = self._new_reader()
        self._text = TextPieces()
        self.tool_calls: tuple[ToolCall, ...] = ()

    @property
    def ended(self) -> TextEnd | None:
        return self._stream.ended

    @property
    def text(self) -> str:
        return self._text.joined()

    def push(self, token_ids: Sequence[int]) -> str:
        return self._text.add("".join(map(self._push_one, checked_token_ids(token_ids))))

    def finish(self, *, is_whole: bool) -> str:
        """See ``Detokenizer``; what the model was writing when it was cut off is no call, nor is what came before."""
        rest = self._coder.push(self._stream.settle()) + self._coder.settle()
        if self.ended is not None:
            is_whole = self.ended.reason == "stop"
        coded = self._reader.push(rest) + self._reader.finish(is_whole=is_whole)
        self.tool_calls = tuple(self._reader.calls)
        return self._text.add(self._coder.shown(coded))

    def fresh(self, output_filter: OutputFilter | None) -> Self:
        other = copy(self)
        other._stream, other._coder = self._stream.fresh(output_filter), copy(self._coder)
        other._reader, other._text = self._new_reader(), TextPieces()
        return other

    def _push_one(self, token_id: int) -> str:
        marker = self._coder.silent.get(token_id)
        if marker is None:
            coded = self._coder.push(self._stream.push(token_id))
        else:
            coded = self._coder.push(self._stream.break_off()) + self._coder.settle()
            coded += marker if self.ended is None else ""
        return self._coder.shown(self._reader.push(coded)) if coded else ""


def _in_thought(tokenizer: Tokenizer, prompt_token_ids: Sequence[int], tool_format: ToolCallFormat) -> bool:
    """Whether the prompt ends with the beginning of a thought, which some templates write for the model."""
    if tool_format.thought is None:
        return False
    marker = tool_format.markers[CODES.index(tool_format.thought[0])]
    tail = list(prompt_token_ids[-_THOUGHT_TAIL:])
    marker_id = tokenizer.token_id(marker)
    if marker_id in tail:
        return not tokenizer.decode(tail[tail.index(marker_id) + 1 :]).strip()
    return tokenizer.decode(tail).rstrip().endswith(marker)
