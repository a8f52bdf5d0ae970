"""Which stretches of an answer are markers: tokens without a text where the vocabulary has such, else spellings."""

import re
from collections.abc import Sequence

from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.tool_calls.formats import CODES


class MarkerCoder:
    """Codes the text of an answer, see ``formats``, and decodes it.

    A marker that is a token without a text is only that token; any other is found by its spelling, and an end of the
    text that may be the beginning of one is held back.

    Attributes:
        silent: by id, the codes of the markers that have no text.
    """

    def __init__(self, tokenizer: Tokenizer, markers: Sequence[str]) -> None:
        codes = dict(zip(markers, CODES, strict=False))
        ids = {marker: tokenizer.token_id(marker) for marker in markers}
        self.silent = {
            token_id: codes[marker]
            for marker, token_id in ids.items()
            if token_id is not None and not tokenizer.decode([token_id])
        }
        silent_codes = set(self.silent.values())
        self._spelled = {marker: code for marker, code in codes.items() if code not in silent_codes}
        self._pattern = re.compile("|".join(map(re.escape, self._spelled)) or "(?!)")
        self._beginnings = frozenset(marker[:end] for marker in self._spelled for end in range(1, len(marker)))
        self._longest = max(map(len, self._beginnings), default=0)
        self._shown = str.maketrans({code: "" if code in silent_codes else marker for marker, code in codes.items()})
        self._all_spelled = str.maketrans({code: marker for marker, code in codes.items()})
        self._undecided = ""

    def push(self, text: str) -> str:
        """Coded, what is settled of the text so far."""
        text = self._pattern.sub(lambda found: self._spelled[found[0]], self._undecided + text)
        longest = min(len(text), self._longest)
        held = next((n for n in range(longest, 0, -1) if text[-n:] in self._beginnings), 0)
        self._undecided = text[len(text) - held :]
        return text[: len(text) - held]

    def settle(self) -> str:
        """What is held back: no spelled marker will come of it."""
        text, self._undecided = self._undecided, ""
        return text

    def shown(self, coded: str) -> str:
        """The text that a reader of the answer sees."""
        return coded.translate(self._shown)

    def spelled(self, coded: str) -> str:
        """The text with all markers spelled: a special token inside of a JSON string is part of it."""
        return coded.translate(self._all_spelled)
