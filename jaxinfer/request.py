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
    """Where a request stands; it moves down this list, and back only from running to waiting, when it is preempted."""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    FINISHED = enum.auto()


@dataclass
class PageTable:
    """The pages that a request holds of one cache group: entry j holds the positions from (first_page + j) * page_size.

    Attributes:
        first_page: how many pages of the sequence left the table at the front, since they left the window.
        pages: ids, in an ``array`` of int32, which each step copies as it is, where a list would be converted number by
            number.
    """

    first_page: int = 0
    pages: array[int] = field(default_factory=partial(array, "i"))


@dataclass(eq=False)  # two requests are never the same one, and rows of a batch are looked up by identity
class Request:
    """A prompt, what its caller asked for, and the state of its generation.

    Attributes:
        request_id: what errors and logs call it; of several sequences of one request each has its own.
        prompt_token_ids: the prompt, never empty.
        params: how its tokens are drawn.
        stop_token_ids: every token that ends it: the model's EOS unless ``ignore_eos``, and ``params.stop_token_ids``.
        max_new_tokens: the tokens it may draw, resolved against ``max_tokens`` and the room that the prompt leaves.
        seed: 64 bits, resolved.
        cache_identity: what keeps its pages apart from equal tokens of other requests: the model, a caller's salt.
        status: waiting, running or finished.
        finish_reason: why it ended; None while it has not.
        slot: its place among the running, in [0, max_num_seqs); None while it does not run.
        page_tables: the KV pages it holds, for each cache group; empty while it does not run.
        num_pages: pages of its sequence up to the end of the tables, which is the same in all of them.
        output_token_ids: the drawn tokens that the host has read, a stop token included.
        num_prefill_tokens: tokens that it reads as a prompt since it was admitted last: after a preemption, those that
            it drew before as well.
        num_scheduled_tokens: tokens whose keys and values are in the cache, or will be once the launched steps ran;
            while it waits after a preemption, how many that were.
        num_scheduled_samples: tokens drawn, or being drawn by launched steps; at least ``len(output_token_ids)``.
        num_cached_tokens: tokens of the prompt whose pages others had computed when it was admitted first.
        num_preemptions: how often its pages were taken from it.
        page_hashes: of its full pages, as far as they were asked for; kept, for a request may be looked at many times.
        num_registered_pages: full pages, counted from the front, that the prefix cache was told of.
    """

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    stop_token_ids: frozenset[int]
    max_new_tokens: int
    seed: int
    cache_identity: tuple[str, ...] = ()
    status: RequestStatus = RequestStatus.WAITING
    finish_reason: FinishReason | None = None
    slot: int | None = None
    page_tables: list[PageTable] = field(default_factory=list)
    num_pages: int = 0
    output_token_ids: list[int] = field(default_factory=list)
    num_prefill_tokens: int = 0
    num_scheduled_tokens: int = 0
    num_scheduled_samples: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    page_hashes: list[bytes] = field(default_factory=list)
    num_registered_pages: int = 0

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt_token_ids)

    @property
    def num_known_tokens(self) -> int:
        """Tokens of the prompt, and those drawn that the host has read."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    def token_ids(self, start: int, end: int) -> list[int]:
        """The known tokens at the positions ``start`` to ``end`` - 1."""
        num_prompt = len(self.prompt_token_ids)
        if end <= num_prompt:
            return self.prompt_token_ids[start:end]
        drawn = self.output_token_ids[max(start - num_prompt, 0) : end - num_prompt]
        return self.prompt_token_ids[start:] + drawn

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
        """Whether some of what it reads as a prompt is in no launched step yet."""
        return self.num_scheduled_tokens < self.num_prefill_tokens

    @property
    def num_pending_samples(self) -> int:
        """Tokens that launched steps draw and the host has not read."""
        return self.num_scheduled_samples - len(self.output_token_ids)

    @property
    def can_decode(self) -> bool:
        """Whether one more token can be drawn from the last one, as far as is known before that one is read."""
        return not self.is_prefilling and self.num_scheduled_samples < self.max_new_tokens
