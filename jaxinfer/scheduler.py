"""Which requests run in the next step, with how many tokens each: continuous batching with chunked prefill.

The engine launches step n + 1 before it has read step n. So ``schedule`` decides by counts of launched tokens and
samples, never by a token, and ``commit`` later appends the drawn tokens and ends requests. An end by length is a matter
of counts and is met exactly; an end by a stop token is noticed one step late, and the surplus token is dropped.

Pages are taken as tokens need them. When they run out, the request that arrived last is preempted: its pages are freed,
and later its known tokens, those that it has drawn included, are read once more as a prompt. Rows of it that are in
flight are committed all the same. Requests are served in order of arrival, so the earliest one always comes to its end:
all others' pages are there for it. ``admission`` bounds how often a request is preempted.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxinfer.admission import Admission
from jaxinfer.batch import Batch, ScheduledRow
from jaxinfer.config import EngineConfig
from jaxinfer.kv_pages import KVPages
from jaxinfer.request import FinishReason, Request, RequestStatus


@dataclass
class Counters:
    """What the cache saved and what its size cost, since the start.

    Attributes:
        num_preemptions: times that a request's pages were taken from it.
        num_resumptions: times that a preempted request was admitted again. Some never are: they are aborted, or end by
            a token that was in flight.
        num_recomputed_tokens: tokens that resumed requests had computed before and could not find in the cache.
        num_prompt_tokens: tokens of the prompts of admitted requests.
        num_cached_tokens: those of them that were in the cache already.
        num_generated_tokens: tokens that requests drew.
        num_evicted_pages: pages of shared prefixes that were given up, for their memory was needed.
    """

    num_preemptions: int = 0
    num_resumptions: int = 0
    num_recomputed_tokens: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_generated_tokens: int = 0
    num_evicted_pages: int = 0


class Scheduler:
    """Owns every unfinished request, the slots and the pages; forgets a request as soon as it has finished."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._pages = KVPages(config)
        self._admission = Admission(config, self._pages)
        self._free_slots = list(range(config.max_num_seqs - 1, -1, -1))
        # Both in order of arrival, and all that run arrived before all that wait.
        self._waiting: OrderedDict[Request, None] = OrderedDict()  # a plain dict is slow to pop from the front
        self._running: dict[Request, None] = {}
        self._without_room: Request | None = None
        self._counters = Counters()

    @property
    def num_waiting(self) -> int:
        """Requests that hold nothing: not admitted yet, or preempted."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Requests that hold a slot."""
        return len(self._running)

    @property
    def num_pages(self) -> tuple[int, ...]:
        """For each cache group the pages of its pool."""
        return self._config.group_pages

    @property
    def num_free_pages(self) -> tuple[int, ...]:
        """For each cache group the pages that no request holds."""
        return self._pages.num_free

    @property
    def counters(self) -> Counters:
        """Of all requests up to now."""
        return replace(self._counters, num_evicted_pages=self._pages.num_evicted)

    @property
    def has_unfinished(self) -> bool:
        """Whether any request is waiting or running."""
        return bool(self._waiting or self._running)

    def add(self, request: Request) -> None:
        """Take over a new request, behind all that wait.

        Raises:
            ValueError: as ``check_fits``.
        """
        self.check_fits(request)
        self._waiting[request] = None

    def check_fits(self, request: Request) -> None:
        """Raises ValueError where its prompt is empty, or it can never fit; the message gives the numbers."""
        self._admission.check_fits(request)

    def end(self, request: Request, reason: FinishReason = "abort") -> None:
        """End a waiting or running request now; its slot and pages are free on return.

        Rows of it that are in flight run on, and what they draw is dropped. One that has ended stays as it is.
        """
        if not request.is_finished:
            self._finish(request, reason)

    def forget_prefixes(self) -> None:
        """Share no page that is known now: for when steps failed that were to write them."""
        self._pages.forget()

    def schedule(self) -> Batch | None:
        """The next step's work, taken as launched; None if nothing can run before a commit or an arrival."""
        self._pages.slide(self._running)  # before any is taken, so that none is preempted for lack of these
        decode_rows, pieces, budget = [], [], self._config.max_chunk_tokens
        for request in list(self._running):
            if request.slot is None:  # preempted for one before it
                break
            if request.is_prefilling:
                piece = self._schedule_piece(request, budget)
                if piece is not None:
                    pieces.append(piece)
                    budget -= self._padded(piece.num_tokens)
            elif request.can_decode:
                row = self._schedule_decode(request)
                if row is not None:
                    decode_rows.append(row)
        while budget > 0 and (admitted := self._admit_next()):
            piece = self._schedule_piece(admitted, budget)
            assert piece is not None, "a request is admitted only if there is room for a token"
            pieces.append(piece)
            budget -= self._padded(piece.num_tokens)
        if not decode_rows and not pieces:
            return None
        return Batch((*decode_rows, *pieces), len(decode_rows), self._config.max_chunk_tokens - budget)

    def commit(self, batch: Batch, token_ids: Sequence[int]) -> list[Request]:
        """Take in what a step drew; batches are committed in the order in which they were scheduled.

        Args:
            batch: what ``schedule`` returned.
            token_ids: the drawn token of each row; the value is ignored where the row does not sample.

        Returns:
            The requests that got a token or finished by it, in the order of the rows.

        Raises:
            ValueError: there is not exactly one token for each row.
        """
        if len(token_ids) != len(batch.rows):
            raise ValueError(f"{len(token_ids)} tokens were given for a batch of {len(batch.rows)} rows")
        changed = []
        for row, token_id in zip(batch.rows, token_ids, strict=True):
            if row.request.is_finished:  # it stopped or was aborted after this step was launched
                continue
            if row.samples:
                self._commit_token(row.request, token_id)
                changed.append(row.request)
            elif row.request.max_new_tokens == 0 and row.start + row.num_tokens == row.request.num_prompt_tokens:
                self._finish(row.request, "length")
                changed.append(row.request)
        return changed

    def _admit_next(self) -> Request | None:
        """Admit the request that waits at the head, if it can run to a useful length; none overtakes it."""
        if not self._waiting or not self._free_slots:
            return None
        head = next(iter(self._waiting))
        # There was no room, and no request gave any back since. It may now find more of its prefix than then, but to
        # count again would cost each step, and before long somebody ends.
        if head is self._without_room:
            return None
        if head.num_pending_samples > 0:  # preempted a moment ago: the tokens that it is to go on from are in flight
            return None
        # Log-probabilities of a prompt come from computing it; once a token has been drawn they are all known.
        computes_whole = head.params.prompt_logprobs is not None and not head.output_token_ids
        num_prefix_pages = 0 if computes_whole else self._pages.find_prefix(head)
        if not self._admission.has_room(head, num_prefix_pages, self._running):
            self._without_room = head
            return None
        self._admit(head, num_prefix_pages)
        return head

    def _admit(self, request: Request, num_prefix_pages: int) -> None:
        num_cached = num_prefix_pages * self._config.page_size
        if request.num_preemptions == 0:
            request.num_cached_tokens = num_cached
            self._counters.num_prompt_tokens += request.num_prompt_tokens
            self._counters.num_cached_tokens += num_cached
        else:
            self._counters.num_resumptions += 1
            self._counters.num_recomputed_tokens += max(0, request.num_scheduled_tokens - num_cached)
        del self._waiting[request]
        self._running[request] = None
        request.status = RequestStatus.RUNNING
        request.slot = self._free_slots.pop()
        request.num_prefill_tokens = request.num_known_tokens
        request.num_scheduled_tokens = num_cached
        self._pages.open(request, num_prefix_pages)
        self._pages.extend(request, self._config.reserved_tokens)

    def _preempt(self, request: Request) -> None:
        """Take a running request's slot and pages, and let it wait before all others."""
        self._vacate(request)
        self._waiting[request] = None
        self._waiting.move_to_end(request, last=False)
        request.status = RequestStatus.WAITING
        request.num_preemptions += 1
        self._counters.num_preemptions += 1

    def _vacate(self, request: Request) -> None:
        """Take back the slot and the pages of a running request.

        A launched step may still write to them. They can be handed to another request at once all the same: the device
        runs steps in order, and the new holder reads only what its own, later steps wrote, or what is known of a page,
        which nobody writes any more.
        """
        assert request.slot is not None, "a running request has a slot"
        del self._running[request]
        self._free_slots.append(request.slot)
        request.slot = None
        self._pages.close(request)
        self._without_room = None

    def _schedule_decode(self, request: Request) -> ScheduledRow | None:
        """The row of its next token; None if it had to be preempted."""
        start = request.num_scheduled_tokens
        if start == request.num_pages * self._config.page_size:  # its pages are full
            if self._make_room(request, start + 1) <= start:
                self._preempt(request)
                return None
            self._pages.extend(request, start + 1)
        row = ScheduledRow(request, start, None, True, request.num_scheduled_samples)
        request.num_scheduled_tokens += 1
        request.num_scheduled_samples += 1
        return row

    def _schedule_piece(self, request: Request, budget: int) -> ScheduledRow | None:
        """The next piece of what it reads: all that is left, or as much as budget and pages allow; None if nothing."""
        start = request.num_scheduled_tokens
        end = min(request.num_prefill_tokens, start + budget)
        if end > start:
            end = min(end, self._make_room(request, end))
        if end <= start:
            return None
        samples = end == request.num_prefill_tokens and request.max_new_tokens > 0
        row = ScheduledRow(request, start, request.token_ids(start, end), samples, request.num_scheduled_samples)
        request.num_scheduled_tokens = end
        request.num_scheduled_samples += samples
        self._pages.extend(request, end)
        self._pages.register(request)
        return row

    def _make_room(self, request: Request, num_tokens: int) -> int:
        """Preempt requests that arrived later until this one can hold so many tokens; returns how many it can hold."""
        while (reach := self._pages.longest_end(request)) < num_tokens:
            latest = next(reversed(self._running))
            if latest is request:
                break
            self._preempt(latest)
        return reach

    def _commit_token(self, request: Request, token_id: int) -> None:
        request.output_token_ids.append(token_id)
        self._counters.num_generated_tokens += 1
        self._pages.register(request)
        if token_id in request.stop_token_ids:  # the sampler draws none before min_tokens, so each one is an end
            self._finish(request, "stop")
        elif len(request.output_token_ids) == request.max_new_tokens:
            self._finish(request, "length")

    def _finish(self, request: Request, reason: FinishReason) -> None:
        """End a request and give back all it held."""
        if request.slot is None:
            del self._waiting[request]
            self._without_room = None  # it may be this one, which is to be forgotten
        else:
            self._vacate(request)
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason

    def _padded(self, num_tokens: int) -> int:
        return -(-num_tokens // self._config.block_q) * self._config.block_q
