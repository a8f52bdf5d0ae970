"""What the engine needs of a tokenizer, whatever file its vocabulary came from."""

from collections.abc import Sequence
from typing import Protocol


class Tokenizer(Protocol):
    """Encodes and decodes; knows its special tokens and, where the model has one, its chat template."""

    vocab_size: int
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    chat_template: str | None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of ``text``.

        With ``add_special_tokens`` the vocabulary's own BOS comes first where the model wants one, and never twice.
        Without it (for text that a chat template wrote, which brings its own) none is added. In both cases the spelling
        of a special token, such as ``<|im_start|>``, becomes that token where the vocabulary's format says so.
        """

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ``token_ids``; special tokens give none. Bytes that are not UTF-8 become U+FFFD."""

    def token_text(self, token_id: int) -> str:
        """How the vocabulary spells one token, special ones included (a chat template needs BOS and EOS so)."""
