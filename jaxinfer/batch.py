"""One step's work in plain numbers, as the scheduler hands it to the runner."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxinfer.request import Request


@dataclass(frozen=True)
class ScheduledRow:
    """What one request does in one step.

    Attributes:
        request: whose row it is. The runner reads its ``slot`` and ``page_tables`` when it launches the step, before
            anything is committed, aborted or scheduled.
        start: the position of the row's first token in the sequence.
        token_ids: the piece of the prompt, or of what is read once more after a preemption; None for a decode row,
            whose one token is the last drawn one, which may be known to the device only.
        samples: whether a token is drawn from the logits after the row's last token.
        sample_index: the index in the output of the token that is drawn, 0 for the first.
    """

    request: Request
    start: int
    token_ids: Sequence[int] | None
    samples: bool
    sample_index: int

    @property
    def num_tokens(self) -> int:
        """Tokens that the row adds to the cache."""
        return 1 if self.token_ids is None else len(self.token_ids)

    @property
    def scores_prompt(self) -> bool:
        """Whether log-probabilities of its piece of the prompt are wanted; once a token was drawn, all are known."""
        return self.token_ids is not None and self.sample_index == 0 and self.request.params.prompt_logprobs is not None


@dataclass(frozen=True)
class Batch:
    """One step's work.

    Attributes:
        rows: the decode rows, then the pieces of prompts; a request has at most one row.
        num_decode_rows: how many of the rows are decode rows.
        num_chunk_tokens: tokens of the pieces, each piece padded up to a multiple of ``block_q``.
    """

    rows: tuple[ScheduledRow, ...]
    num_decode_rows: int
    num_chunk_tokens: int
