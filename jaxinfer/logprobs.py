"""Log-probabilities of tokens, as a step gives them and as a caller sees them; the classes of the latter are vLLM's."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int32


@dataclass(frozen=True, slots=True)  # a prompt may have a million of them
class Logprob:
    """What the model's raw distribution says of one token: nothing of a request's sampling parameters changes it.

    Attributes:
        logprob: natural logarithm of its probability.
        rank: 1 and as many as have a larger ``logprob``, so that equally likely tokens share a rank.
        decoded_token: its text in the middle of a text, or its spelling if it is special; None without a tokenizer.
    """

    logprob: float
    rank: int
    decoded_token: str | None


@dataclass(frozen=True)
class RankedLogprobs:
    """What a step tells of N tokens, each of a distribution of its own.

    Attributes:
        logprob: of each token.
        rank: of each token, 1 and as many as have a larger log-probability.
        top_ids: for each distribution the most likely tokens, in that order.
        top_logprobs: theirs.
    """

    logprob: Float32[np.ndarray, "N"]
    rank: Int32[np.ndarray, "N"]
    top_ids: Int32[np.ndarray, "N K"]
    top_logprobs: Float32[np.ndarray, "N K"]

    def of(self, i: int, token_id: int, num_top: int, spell: Callable[[int], str | None]) -> dict[int, Logprob]:
        """What a caller is told of token i: itself first, then the ``num_top`` most likely ones, by token id.

        Args:
            i: which of the N.
            token_id: the token itself.
            num_top: at most K.
            spell: the ``decoded_token`` of an id.
        """
        told = {token_id: Logprob(float(self.logprob[i]), int(self.rank[i]), spell(token_id))}
        ids, logprobs = self.top_ids[i, :num_top].tolist(), self.top_logprobs[i, :num_top].tolist()
        rank, before = 0, None
        for place, (top_id, logprob) in enumerate(zip(ids, logprobs, strict=True), start=1):
            if logprob != before:
                rank, before = place, logprob
            told.setdefault(top_id, Logprob(logprob, rank, spell(top_id)))
        return told
