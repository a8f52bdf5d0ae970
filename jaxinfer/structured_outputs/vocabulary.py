"""A model's tokens as a grammar sees them: the bytes that each adds to a text, and which of them end one."""

from collections.abc import Sequence

from jaxinfer.structured_outputs.library_tokens import library_tokens
from jaxinfer.token_masks import TokenBits, pack_token_bits
from jaxinfer.tokenizers.protocol import Tokenizer


class GrammarVocabulary:
    """The tokens of one engine; to make it takes about a second for 50,000 tokens.

    A token without bytes is never part of a text: a special one, an id that the tokenizer does not have, and an EOS
    even if its spelling is plain text, since it would end the answer in the middle.

    Attributes:
        size: V of the model.
        eos_token_ids: what ends a text.
        tokens: what ``llguidance`` needs; its own EOS is one id more, behind the vocabulary.
        text: bits of the tokens that can be part of a text.
        ends: bits of the EOS tokens.
    """

    def __init__(self, tokenizer: Tokenizer, size: int, eos_token_ids: Sequence[int]) -> None:
        self.size, self.eos_token_ids = size, frozenset(eos_token_ids)
        data = [b"" if token_id in self.eos_token_ids else tokenizer.token_bytes(token_id) for token_id in range(size)]
        self.tokens = library_tokens(data)
        self.text: TokenBits = pack_token_bits(frozenset(i for i, token in enumerate(data) if token), size)
        self.ends: TokenBits = pack_token_bits(self.eos_token_ids, size)

    def has_text(self, token_id: int) -> bool:
        """Whether the token can be part of a text."""
        return 0 <= token_id < self.size and bool(self.text[token_id // 32] >> (token_id % 32) & 1)
