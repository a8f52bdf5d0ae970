"""One request as the host sees it: what was asked, and how far it has come.

A request is one mutable object with one owner: the engine makes it with every limit resolved, ``Scheduler.add`` takes
it over, and from then on only the scheduler changes it. It counts scheduled and committed work apart, because the host
launches a step before it has read the one before.
"""

import enum
from array import array
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from jaxinfer.sampling_params import SamplingParams

FinishReason = Literal["stop", "length", "abort"]


class RequestStatus(enum.Enum):
    """Where a request stands; it moves down this list and never back."""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    FINISHED = enum.auto()


@dataclass(eq=False)  # two requests are never the same one, and rows of a batch are looked up by identity
class Request:
    """A prompt, what its caller asked for, and the state of its generation.

    Attributes:
        request_id: the caller's name for it, unique among the unfinished.
        prompt_token_ids: the prompt, never empty.
        params: how its tokens are drawn.
        stop_token_ids: every token that ends it: the model's EOS unless ``ignore_eos``, and ``params.stop_token_ids``.
        max_new_tokens: the tokens it may draw, resolved against ``max_tokens`` and the room that the prompt leaves.
        seed: 64 bits, resolved.
        status: waiting, running or finished.
        finish_reason: why it ended; None while it has not.
        slot: its place among the running, in [0, max_num_seqs); None while it does not run.
        pages: the KV pages it holds; entry j holds the positions from ``j * page_size``. An ``array`` of int32, which
            each step copies as it is, where a list would be converted number by number.
        output_token_ids: the drawn tokens that the host has read, a stop token included.
        num_scheduled_tokens: tokens whose keys and values are in the cache, or will be once the launched steps ran.
        num_scheduled_samples: tokens drawn, or being drawn by launched steps; at least ``len(output_token_ids)``.
    """

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    stop_token_ids: frozenset[int]
    max_new_tokens: int
    seed: int
    status: RequestStatus = RequestStatus.WAITING
    finish_reason: FinishReason | None = None
    slot: int | None = None
    pages: array[int] = field(default_factory=partial(array, "i"))
    output_token_ids: list[int] = field(default_factory=list)
    num_scheduled_tokens: int = 0
    num_scheduled_samples: int = 0

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt_token_ids)

    @property
    def max_cached_tokens(self) -> int:
        """Positions it may ever write to the cache: the last drawn token is fed to no step, so it needs none."""
        return self.num_prompt_tokens + max(self.max_new_tokens, 1) - 1

    @property
    def is_finished(self) -> bool:
        """Whether it has ended, for whatever reason."""
        return self.status is RequestStatus.FINISHED

    @property
    def is_prefilling(self) -> bool:
        """Whether some of the prompt is in no launched step yet."""
        return self.num_scheduled_tokens < self.num_prompt_tokens

    @property
    def can_decode(self) -> bool:
        """Whether one more token can be drawn from the last one, as far as is known before that one is read."""
        return not self.is_prefilling and self.num_scheduled_samples < self.max_new_tokens
