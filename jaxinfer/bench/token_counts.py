"""Prompts made of words, and how many words give about a number of tokens, whatever the server's tokenizer is."""

from dataclasses import dataclass

import numpy as np

_WORDS = (
    *("the", "and", "was", "with", "her", "they", "said", "little", "big", "day", "went", "home", "play", "saw"),
    *("happy", "very", "one", "time", "not", "all", "had", "his", "new", "good", "back", "see", "out", "make", "like"),
    *("look", "down", "tree", "water", "house", "door", "hand", "way", "right", "old", "long", "work", "name", "place"),
)
"""Short and common, so that most vocabularies have each as one token."""

FEW_WORDS, MORE_WORDS = 2, 32
"""Of the two prompts whose tokens are counted; a model of 128 tokens takes both."""


@dataclass(frozen=True)
class TokenCounts:
    """A line through two prompts that the server counted; without them, a token for each word.

    Attributes:
        per_word: tokens of one word.
        around: tokens that come with each prompt, such as a BOS token or a chat template's.
    """

    per_word: float = 1.0
    around: float = 0.0

    @classmethod
    def measured(cls, few: int, more: int) -> "TokenCounts":
        """From the tokens of a prompt of ``FEW_WORDS`` and of one of ``MORE_WORDS``."""
        per_word = (more - few) / (MORE_WORDS - FEW_WORDS)
        return cls(per_word, few - FEW_WORDS * per_word) if per_word > 0 else cls()

    def num_words(self, num_tokens: int) -> int:
        """Words of a prompt of about so many tokens, at least one."""
        return max(1, round((num_tokens - self.around) / self.per_word))


def made_up_prompt(num_words: int, rng: np.random.Generator) -> str:
    """Words in a random order. Two such prompts have no beginning in common that is worth caching."""
    return " ".join(_WORDS[i] for i in rng.integers(len(_WORDS), size=num_words))
