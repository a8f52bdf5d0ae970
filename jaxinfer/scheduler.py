"""Which requests run in the next step, with how many tokens each: continuous batching with chunked prefill.

The engine launches step n + 1 before it has read step n. So ``schedule`` decides by counts of launched tokens and
samples, never by a token, and ``commit`` later appends the drawn tokens and ends requests. An end by length is a matter
of counts and is met exactly; an end by a stop token is noticed one step late, and the surplus token is dropped.

Admission is a promise. A waiting request is admitted only if the pool holds the worst case of every running request and
its own worst case too. Pages are then taken one by one as tokens need them, and taking one cannot fail in mid-flight.

Nobody starves: waiting requests are admitted in order of arrival and none overtakes a head that does not fit, and every
running request comes to its end, for all of them decode in each step and the prompts are served in order.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jaxinfer.config import EngineConfig
from jaxinfer.page_allocator import PageAllocator
from jaxinfer.request import FinishReason, Request, RequestStatus


@dataclass(frozen=True)
class ScheduledRow:
    """What one request does in one step.

    Attributes:
        request: whose row it is. The runner reads its ``slot`` and ``pages`` when it launches the step, before anything
            is committed, aborted or scheduled.
        start: the position of the row's first token in the sequence.
        token_ids: the piece of the prompt; None for a decode row, whose one token is the last drawn one, which may be
            known to the device only.
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


class Scheduler:
    """Owns every unfinished request, the slots and the pages; forgets a request as soon as it has finished."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._allocator = PageAllocator(config.num_kv_pages)
        self._num_unpromised_pages = config.num_kv_pages
        self._free_slots = list(range(config.max_num_seqs - 1, -1, -1))
        self._waiting: OrderedDict[str, Request] = OrderedDict()  # arrival; a plain dict is slow to pop from the front
        self._running: dict[str, Request] = {}  # order of admission

    @property
    def num_waiting(self) -> int:
        """Requests that were added and not admitted yet."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Requests that hold a slot."""
        return len(self._running)

    @property
    def num_free_pages(self) -> int:
        """Pages that no request holds; some may be promised to running ones."""
        return self._allocator.num_free

    @property
    def has_unfinished(self) -> bool:
        """Whether any request is waiting or running."""
        return bool(self._waiting or self._running)

    def add(self, request: Request) -> None:
        """Take over a new request, behind all that wait.

        Raises:
            ValueError: its id is in use, its prompt is empty, or it can never fit; the message gives the numbers.
        """
        if request.request_id in self._waiting or request.request_id in self._running:
            raise ValueError(f"request id {request.request_id!r} is in use by an unfinished request")
        self._check_fits(request)
        self._waiting[request.request_id] = request

    def abort(self, request_id: str) -> Request | None:
        """End a waiting or running request now; its slot and pages are free on return.

        Rows of it that are in flight run on, and what they draw is dropped. An unknown or finished id gives None.
        """
        request = self._waiting.get(request_id) or self._running.get(request_id)
        if request is not None:
            self._finish(request, "abort")
        return request

    def schedule(self) -> Batch | None:
        """The next step's work, taken as launched; None if nothing can run before a commit or an arrival."""
        rows = [self._schedule_decode(request) for request in self._running.values() if request.can_decode]
        num_decode_rows = len(rows)
        budget = self._config.max_chunk_tokens
        for request in self._prefills():
            piece = self._schedule_piece(request, budget)
            rows.append(piece)
            budget -= self._padded(piece.num_tokens)
            if budget == 0:
                break
        if not rows:
            return None
        return Batch(tuple(rows), num_decode_rows, self._config.max_chunk_tokens - budget)

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
            elif row.start + row.num_tokens == row.request.num_prompt_tokens:  # its prompt is all it asked for
                self._finish(row.request, "length")
                changed.append(row.request)
        return changed

    def _check_fits(self, request: Request) -> None:
        config, name, num_prompt = self._config, f"request {request.request_id!r}", request.num_prompt_tokens
        if num_prompt == 0:
            raise ValueError(f"{name} has an empty prompt; at least one token is needed")
        if num_prompt > config.max_model_len:
            raise ValueError(
                f"{name} has a prompt of {num_prompt} tokens and max_model_len is {config.max_model_len}; "
                "shorten the prompt or raise max_model_len"
            )
        if not 0 <= request.max_new_tokens <= config.max_model_len - num_prompt:
            raise ValueError(
                f"{name} has max_new_tokens {request.max_new_tokens}; with a prompt of {num_prompt} tokens and "
                f"max_model_len {config.max_model_len} it must be in [0, {config.max_model_len - num_prompt}]"
            )
        if self._max_pages(request) > config.num_kv_pages:
            raise ValueError(
                f"{name} has a prompt of {num_prompt} tokens and may draw {request.max_new_tokens} more "
                f"(max_model_len is {config.max_model_len}), which takes {self._max_pages(request)} KV pages of "
                f"{config.page_size} tokens, and the pool has {config.num_kv_pages}; "
                "shorten the prompt, lower max_tokens or raise num_kv_pages"
            )

    def _prefills(self) -> Iterator[Request]:
        """Requests with prompt left to schedule; a waiting one is admitted when the caller comes to it, not before."""
        yield from [request for request in self._running.values() if request.is_prefilling]
        while self._waiting:
            head = next(iter(self._waiting.values()))
            if not self._free_slots or self._max_pages(head) > self._num_unpromised_pages:
                return
            self._admit(head)
            yield head

    def _admit(self, request: Request) -> None:
        del self._waiting[request.request_id]
        self._running[request.request_id] = request
        request.status = RequestStatus.RUNNING
        request.slot = self._free_slots.pop()
        self._num_unpromised_pages -= self._max_pages(request)

    def _schedule_decode(self, request: Request) -> ScheduledRow:
        row = ScheduledRow(request, request.num_scheduled_tokens, None, True, request.num_scheduled_samples)
        self._record(row)
        return row

    def _schedule_piece(self, request: Request, budget: int) -> ScheduledRow:
        """The next piece of a prompt: all that is left, or as much as the budget (a multiple of block_q) allows."""
        start = request.num_scheduled_tokens
        end = min(request.num_prompt_tokens, start + budget)
        samples = end == request.num_prompt_tokens and request.max_new_tokens > 0
        row = ScheduledRow(request, start, request.prompt_token_ids[start:end], samples, request.num_scheduled_samples)
        self._record(row)
        return row

    def _record(self, row: ScheduledRow) -> None:
        """Count the row as launched and take the pages that its tokens need."""
        request = row.request
        request.num_scheduled_tokens += row.num_tokens
        request.num_scheduled_samples += row.samples
        while len(request.pages) < self._num_pages(request.num_scheduled_tokens):
            request.pages.append(self._allocator.allocate())

    def _commit_token(self, request: Request, token_id: int) -> None:
        request.output_token_ids.append(token_id)
        if token_id in request.stop_token_ids:  # the sampler draws none before min_tokens, so each one is an end
            self._finish(request, "stop")
        elif len(request.output_token_ids) == request.max_new_tokens:
            self._finish(request, "length")

    def _finish(self, request: Request, reason: FinishReason) -> None:
        """End a request and give back all it held.

        A launched step may still write to its pages and its slot. They can be handed to another request at once all the
        same: the device runs steps in order, and the new holder reads only what its own, later steps wrote.
        """
        if request.slot is None:
            del self._waiting[request.request_id]
        else:
            del self._running[request.request_id]
            self._free_slots.append(request.slot)
            self._num_unpromised_pages += self._max_pages(request)
        for page in request.pages:
            self._allocator.release(page)
        del request.pages[:]
        request.slot = None
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason

    def _max_pages(self, request: Request) -> int:
        return self._num_pages(request.max_cached_tokens)

    def _num_pages(self, num_tokens: int) -> int:
        return -(-num_tokens // self._config.page_size)

    def _padded(self, num_tokens: int) -> int:
        return -(-num_tokens // self._config.block_q) * self._config.block_q
