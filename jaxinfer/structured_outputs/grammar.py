"""Forms of answers as masks of tokens, through ``llguidance``."""

from collections.abc import Sequence

from jaxinfer.structured_outputs.params import StructuredOutputsParams
from jaxinfer.token_masks import Grammar
from jaxinfer.tokenizers.protocol import Tokenizer


class GrammarTemplate:
    """Placeholder."""

    def fresh(self) -> Grammar:
        """One for a new sequence, at its beginning."""
        raise NotImplementedError


class GrammarMaker:
    """Placeholder."""

    def __init__(self, tokenizer: Tokenizer | None, vocab_size: int, eos_token_ids: Sequence[int]) -> None:
        self._tokenizer, self._vocab_size, self._eos_token_ids = tokenizer, vocab_size, eos_token_ids

    def make(self, params: StructuredOutputsParams | None) -> GrammarTemplate | None:
        """Placeholder."""
        if params is not None:
            raise ValueError("structured outputs are not there yet")
        return None
