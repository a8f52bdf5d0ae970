"""Which tokens of prompts a step is to score, and where their log-probabilities lie once it ran.

A token is scored from the hidden state of the one before it. Those of all rows that want it are scored together, in
tiles of a fixed size, and other rows' tokens not at all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Array, Int32

from jaxinfer.batch import Batch
from jaxinfer.logprobs import RankedLogprobs
from jaxinfer.ranking import read_ranked
from jaxinfer.step_inputs import StepLayout


@dataclass(frozen=True)
class TokensToScore:
    """The tokens to score in one step.

    Attributes:
        places: for each where the hidden state of the token before it lies among the B + C of the step.
        token_ids: their ids.
        spans: for each row that wants any which of these are its own, in their order in the prompt.
    """

    places: Int32[np.ndarray, "N"]
    token_ids: Int32[np.ndarray, "N"]
    spans: Mapping[int, slice]

    @classmethod
    def of(cls, batch: Batch, layout: StepLayout) -> "TokensToScore":
        """Those of a batch. What a resumed request reads once more of its output is no prompt, and is not scored."""
        places, token_ids, spans, end = [], [], {}, 0
        for i, row, begin in layout.pieces(batch):
            if row.scores_prompt:
                wanted = row.request.prompt_token_ids[row.start + 1 : row.start + row.num_tokens + 1]
                places.append(layout.num_rows + begin + np.arange(len(wanted), dtype=np.int32))
                token_ids += wanted
                spans[i], end = slice(end, end + len(wanted)), end + len(wanted)
        return cls(np.concatenate([np.zeros(0, np.int32), *places]), np.array(token_ids, np.int32), spans)

    def tiles(self, size: int) -> Iterator[tuple[Int32[np.ndarray, "size"], Int32[np.ndarray, "size"]]]:
        """Places and ids of so many tokens at a time, the last tile filled up with zeros; fresh and read-only."""
        for begin in range(0, len(self.places), size):
            tile = np.zeros((2, size), np.int32)
            num_tokens = len(self.places[begin : begin + size])
            tile[:, :num_tokens] = self.places[begin : begin + size], self.token_ids[begin : begin + size]
            tile.flags.writeable = False  # the device may read it while the step runs
            yield tile[0], tile[1]


@dataclass(frozen=True)
class PromptScores:
    """What a launched step will tell of the tokens of prompts.

    Attributes:
        tiles: what ``rank`` gave of each tile of tokens.
        spans: as in ``TokensToScore``.
    """

    tiles: Sequence[Int32[Array, "tile words"]]
    spans: Mapping[int, slice]

    def of(self, row: int) -> RankedLogprobs:
        """Of the tokens that follow those of the row's piece, as far as they are of its prompt."""
        return read_ranked(self._words[self.spans[row]])

    @cached_property
    def _words(self) -> Int32[np.ndarray, "N words"]:
        return np.concatenate([np.asarray(tile) for tile in self.tiles]) if self.tiles else np.zeros((0, 2), np.int32)
