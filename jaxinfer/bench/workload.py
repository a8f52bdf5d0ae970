"""What is asked: prompts and the lengths of their answers, those of a file or made-up ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import ClassVar, Protocol

import numpy as np

from jaxinfer.bench.token_counts import TokenCounts, made_up_prompt


@dataclass(frozen=True)
class Ask:
    """Attributes: one prompt, and how many tokens its answer may have."""

    prompt: str
    max_tokens: int


class Workload(Protocol):
    """Where prompts come from."""

    @property
    def made_up(self) -> bool:
        """Whether they are words, whose tokens the server is to count first."""

    def asks(self, number: int, counts: TokenCounts, rng: np.random.Generator) -> list[Ask]:
        """So many, with what the server makes of made-up words."""


@dataclass(frozen=True)
class GivenPrompts:
    """The user's own, always the same: a server that caches prefixes knows them after the first time.

    Attributes:
        prompts: one or more.
    """

    prompts: Sequence[Ask]
    made_up: ClassVar[bool] = False

    def asks(self, number: int, counts: TokenCounts, rng: np.random.Generator) -> list[Ask]:
        """The first ``number``, from the first again after the last."""
        return list(islice(cycle(self.prompts), number))


@dataclass(frozen=True)
class MadeUpPrompts:
    """Words of about the tokens that are asked for, others each time.

    Attributes:
        lengths: tokens of prompt and output; one pair or more. An output of none is one of one token.
    """

    lengths: Sequence[tuple[int, int]]
    made_up: ClassVar[bool] = True

    def asks(self, number: int, counts: TokenCounts, rng: np.random.Generator) -> list[Ask]:
        """Of the first ``number`` lengths, from the first again after the last."""
        return [
            Ask(made_up_prompt(counts.num_words(prompt), rng), max(output, 1))
            for prompt, output in islice(cycle(self.lengths), number)
        ]

    def fitting(self, most: int) -> "MadeUpPrompts":
        """Only the lengths that have at most so many tokens in all.

        Raises:
            ValueError: there is none.
        """
        found = [(prompt, output) for prompt, output in self.lengths if prompt + max(output, 1) <= most]
        if not found:
            raise ValueError(f"no prompt and its output have together at most {most} tokens")
        return MadeUpPrompts(found)
