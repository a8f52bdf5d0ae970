"""The text of a command that scores one: cut to so many tokens, and refused before the wait for the weights."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxinfer.value_checks import check_int

if TYPE_CHECKING:
    from jaxinfer.tokenizers.protocol import Tokenizer


@dataclass(frozen=True)
class ScoredText:
    """What is to be scored: its ids, those of them that are no special token at its beginning, and its bytes."""

    token_ids: list[int]
    num_of_text: int
    num_bytes: int

    @classmethod
    def of(cls, content: str, num_tokens: int | None, tokenizer: "Tokenizer | None", vocab_size: int) -> "ScoredText":
        """The first so many tokens of a text; None: all.

        Raises:
            ValueError: the model has no tokenizer, or one that does not belong to it; the text is too short, or the
                number is below 2.
        """
        if tokenizer is None:
            raise ValueError("this model has no tokenizer, so it can read no text")
        if num_tokens is not None:
            check_int("--tokens", num_tokens, "a whole number >= 2, for the first token is not scored", 2)
        token_ids = tokenizer.encode(content)
        if len(token_ids) < (num_tokens or 2):
            raise ValueError(f"the text has {len(token_ids)} tokens; at least {num_tokens or 2} are needed")
        taken = token_ids[:num_tokens]
        if max(taken) >= vocab_size:
            raise ValueError(f"the tokenizer gives the id {max(taken)}, and this model has {vocab_size} tokens")
        text = content if len(taken) == len(token_ids) else tokenizer.decode(taken)
        return cls(taken, len(taken) - len(tokenizer.encode("")), len(text.encode()))
