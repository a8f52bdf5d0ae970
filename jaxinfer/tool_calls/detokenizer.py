"""The text of a request that may call tools: its calls are kept out of it."""

from collections.abc import Sequence

from jaxinfer.detokenizer import IncrementalDetokenizer
from jaxinfer.outputs import ToolCall
from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.tokenizers.token_ids import checked_token_ids
from jaxinfer.tool_calls.formats import ToolCallFormat


class ToolCallDetokenizer:
    """An ``IncrementalDetokenizer`` that gives out no text from where a call begins, and reads the calls at the end.

    The law: all deltas joined are ``text``. Where no call could be read, that is what ``IncrementalDetokenizer`` gives,
    so nothing is lost; else it lacks the calls, and what was written between and behind them shows its markers. Text
    is held back only while it may be the beginning of a call. The time of a token does not depend on how many came
    before it.

    Attributes:
        text: all deltas so far, joined.
        tool_calls: what ``finish`` has read.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], tool_format: ToolCallFormat) -> None:
        """Raises ValueError for a negative token id, or one that is no whole number."""
        self._inner = IncrementalDetokenizer(tokenizer, prompt_token_ids)
        self._format = tool_format
        self._silent = _silent_markers(tokenizer, tool_format.markers)
        self._undecided = ""  # the end of the text that may be the beginning of a call
        self._begun = False
        self._held: list[str] = []  # the text from where a call has begun,
        self._written: list[str] = []  # and the same with the silent markers spelled
        self.text = ""
        self.tool_calls: tuple[ToolCall, ...] = ()

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that these tokens settle and that is of no call.

        Raises:
            ValueError: a token id is negative or no whole number; then none of ``token_ids`` has been taken.
        """
        deltas = [
            self._take(self._inner.push([token_id]), self._silent.get(token_id, ""))
            for token_id in checked_token_ids(token_ids)
        ]
        return "".join(deltas)

    def finish(self, *, is_whole: bool) -> str:
        """The text that was held back; to be called once, at the end.

        Args:
            is_whole: the model ended its answer itself. Else, what it was writing when it was cut off is no call.
        """
        delta = self._take(self._inner.finish(), "")
        rest = "".join(self._held) if self._begun else self._undecided
        if self._begun and is_whole:
            parsed = self._format.parse("".join(self._written))
            if parsed.calls:
                self.tool_calls, rest = parsed.calls, parsed.text
        return delta + self._emit(rest)

    def _take(self, delta: str, marker: str) -> str:
        """Of ``delta`` and what is undecided, that which is text; ``marker`` comes behind, unseen."""
        if self._begun:
            self._held.append(delta)
            self._written.append(delta + marker)
            return ""
        text = self._undecided + delta
        written = text + marker
        opening = self._format.find_opening(written, not self.text)
        self._undecided = text[opening.start :]
        if opening.begun:
            self._begun, self._held, self._written = True, [self._undecided], [written[opening.start :]]
        return self._emit(text[: opening.start])

    def _emit(self, text: str) -> str:
        self.text += text
        return text


def _silent_markers(tokenizer: Tokenizer, markers: Sequence[str]) -> dict[int, str]:
    """By id, those that are tokens without a text; the others are found in the text."""
    ids = {marker: tokenizer.token_id(marker) for marker in markers}
    return {
        token_id: marker for marker, token_id in ids.items() if token_id is not None if not tokenizer.decode([token_id])
    }
