"""The text of one request, as its tokens come: each running request owns one of these, on the engine's edge."""

from collections.abc import Sequence

from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.tokenizers.token_ids import checked_token_ids


class IncrementalDetokenizer:
    """Turns output tokens into text that never has to be taken back.

    With P the prompt and O all tokens pushed, the law is: the deltas (all pushes, then ``finish``), joined, are
    ``decode(P + O)`` without the longest prefix that it shares with ``decode(P)``. So prompt and text read on from one
    another: the text keeps the space before its first word where the prompt has text, and has none after BOS alone. A
    prompt that ends inside a character leaves the whole character to the text.

    An id without a token (see ``jaxinfer.tokenizers.protocol``) gives no text, in the prompt as in the output.

    A delta is settled: no later token changes it. What a token costs does not depend on how many came before it.

    Attributes:
        text: all deltas so far, joined.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int] = ()) -> None:
        """Raises ValueError for a negative token id, or one that is no whole number."""
        self._stream = tokenizer.text_stream(prompt_token_ids)
        self._shown_by_prompt = self._stream.pending()
        self.text = ""

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that these tokens settle, often "" while a character is incomplete.

        Raises:
            ValueError: a token id is negative or no whole number; then none of ``token_ids`` has been taken.
        """
        return self._emit("".join(map(self._stream.push, checked_token_ids(token_ids))))

    def finish(self) -> str:
        """The text that was held back, as it reads now that no further token comes. To be called once, at the end."""
        return self._emit(self._stream.pending())

    def _emit(self, text: str) -> str:
        """Drops what the prompt's own text has shown already: an incomplete end that the output did not change."""
        if text and self._shown_by_prompt:
            shared = _shared_prefix_len(text, self._shown_by_prompt)
            self._shown_by_prompt = self._shown_by_prompt[shared:] if shared == len(text) else ""
            text = text[shared:]
        self.text += text
        return text


def _shared_prefix_len(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
