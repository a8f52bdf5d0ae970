"""Scheduler, pages, prefix cache and windows under random load, over a device that keeps what it was told to keep.

Whatever is shared, slid out of a window, evicted or preempted, each request must get the tokens that it gets alone. The
fake device runs every step as late as it can and draws tokens from what the pages hold, so a page that was wrong,
stale, overwritten or given away too early shows in the output. Besides, the machine keeps its own account of every
request, written from the rules and not from the scheduler: how far it has come, in which order requests are served,
preempted and admitted, and which pages each must hold.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jaxinfer.batch import ScheduledRow
from jaxinfer.config import EngineConfig
from jaxinfer.request import Request, RequestStatus
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.scheduler import Scheduler
from tests.fake_runner import FakeRunner, FakeStep, expected_tokens

MAX_MODEL_LEN = 24
ARRIVALS = st.fixed_dictionaries(
    {
        "count": st.integers(1, 8),
        "prompt": st.sampled_from([range(100, 100 + MAX_MODEL_LEN), range(200, 200 + MAX_MODEL_LEN)]),
        "num_shared": st.one_of(st.integers(0, MAX_MODEL_LEN), st.integers(0, 6), st.integers(0, 6)),
        "num_own": st.integers(0, 3),
        "max_new": st.one_of(st.integers(0, 8), st.just(MAX_MODEL_LEN), st.just(MAX_MODEL_LEN)),
        "stop_at": st.integers(0, 2 * MAX_MODEL_LEN),
        "identity": st.sampled_from([(), ("salt",)]),
    }
)
"""Requests with one beginning that arrive together."""


@dataclass(eq=False)
class Account:
    """What must be true of one request."""

    request: Request
    number: int  # in order of arrival
    expected: list[int]  # what it draws alone
    status: RequestStatus = RequestStatus.WAITING
    num_launched: int = 0  # positions of the sequence that its rows wrote, or found written, since its last admission
    num_to_read: int = 0  # of them those that it reads as a prompt
    num_drawn: int = 0  # samples of launched rows
    output: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    num_preemptions: int = 0

    @property
    def known(self) -> list[int]:
        return self.request.prompt_token_ids + self.output

    @property
    def num_pending(self) -> int:
        return self.num_drawn - len(self.output)

    @property
    def may_decode(self) -> bool:
        return self.num_launched >= self.num_to_read and self.num_drawn < self.request.max_new_tokens

    @property
    def num_positions(self) -> int:
        """Positions of the prompt and of all drawn tokens but the last."""
        drawn_and_fed = range(self.request.max_new_tokens)[:-1]
        return len(self.request.prompt_token_ids) + len(drawn_and_fed)


class SchedulerMachine(RuleBasedStateMachine):
    """Accounts move from waiting to running to finished, and by preemption back, as the rules say they must."""

    @initialize(
        windows=st.sampled_from([(None,), (5,), (2,), (None, 3), (None, 7), (9, 2)]),
        max_num_seqs=st.integers(2, 6),
        page_size=st.sampled_from([1, 2, 3, 4]),
        num_kv_tokens=st.integers(MAX_MODEL_LEN // 2, 3 * MAX_MODEL_LEN // 2),
        block_q=st.sampled_from([1, 2, 4]),
        blocks=st.integers(1, 6),
        prefix_cache=st.sampled_from([True, True, True, False]),
        arrivals=ARRIVALS,
        last_depth=st.integers(0, 3),
    )
    def start(
        self,
        page_size: int,
        num_kv_tokens: int,
        block_q: int,
        blocks: int,
        arrivals: dict[str, Any],
        last_depth: int,
        **limits,
    ) -> None:
        self.config = EngineConfig(
            max_model_len=MAX_MODEL_LEN,
            max_chunk_tokens=block_q * blocks,
            page_size=page_size,
            num_kv_pages=num_kv_tokens // page_size,
            block_q=block_q,
            **limits,
        )
        self.scheduler, self.device = Scheduler(self.config), FakeRunner(self.config)
        self.accounts: list[Account] = []
        self.unfinished: list[Account] = []  # of them, in order of arrival too
        self.in_flight: deque[FakeStep] = deque()
        self.last_depth = last_depth
        self.arrive(**arrivals)

    # What happens

    @rule(arrivals=ARRIVALS)
    def add(self, arrivals: dict[str, Any]) -> None:
        self.arrive(**arrivals)

    def arrive(self, count: int, prompt: range, num_shared: int, num_own: int, **options) -> None:
        for number in range(len(self.accounts), len(self.accounts) + count):
            own = range(1000 * (1 + number), 1000 * (1 + number) + num_own)
            self.add_one(f"r{number}", [*prompt[:num_shared], *own], **options)

    def add_one(self, name: str, prompt: list[int], max_new: int, stop_at: int, identity: tuple[str, ...]) -> None:
        max_new = max(0, min(max_new, MAX_MODEL_LEN - len(prompt)))
        expected = expected_tokens(prompt, max_new, self.config.windows, identity) if prompt else []
        stop = frozenset(expected[stop_at : stop_at + 1])
        request = Request(name, prompt, SamplingParams(temperature=0), stop, max_new, seed=0, cache_identity=identity)
        account = Account(request, len(self.accounts), expected)
        if 1 <= len(prompt) <= MAX_MODEL_LEN and self.fits_alone(account):
            self.scheduler.add(request)
            self.accounts.append(account)
            self.unfinished.append(account)
        else:
            told = f"the prompt has {len(prompt)} tokens" if prompt else f"{name}' has an empty prompt"
            with pytest.raises(ValueError, match=told):
                self.scheduler.add(request)

    @precondition(lambda self: len(self.unfinished) > 1)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        account = data.draw(st.sampled_from(self.unfinished))
        self.scheduler.end(account.request)
        self.end(account, "abort")

    @precondition(lambda self: len(self.unfinished) < len(self.accounts))
    @rule(data=st.data())
    def abort_what_has_ended(self, data: st.DataObject) -> None:
        ended = [account for account in self.accounts if account not in self.unfinished]
        self.scheduler.end(data.draw(st.sampled_from(ended)).request)

    @precondition(lambda self: len(self.accounts) > 4)
    @rule()
    def forget_prefixes(self) -> None:
        self.scheduler.forget_prefixes()

    @rule(times=st.integers(1, 8), depth=st.integers(0, 3))
    def serve(self, times: int, depth: int) -> None:
        """The engine's loop, with so many steps in flight; a rule for each step alone would see few preemptions."""
        for _ in range(times):
            is_busy = self.schedule()
            while len(self.in_flight) > (depth if is_busy else 0):
                self.commit()
            if not self.unfinished:
                break

    def schedule(self) -> bool:
        were_running = self.running
        batch = self.scheduler.schedule()
        rows = batch.rows if batch else ()
        assert batch is None or rows
        num_decode_rows = batch.num_decode_rows if batch else 0

        self.check_preempted(were_running)
        must_decode = [account for account in self.running if account.may_decode]
        assert [row.request for row in rows[:num_decode_rows]] == [account.request for account in must_decode]
        for row, account in zip(rows, must_decode, strict=False):
            self.check_decode_row(row, account)
        self.check_pieces(rows[num_decode_rows:], batch.num_chunk_tokens if batch else 0)
        if batch:
            self.in_flight.append(self.device.forward(batch))
        self.pages_that_no_table_names_are_free()
        self.all_that_run_arrived_before_all_that_wait()
        return batch is not None

    def commit(self) -> None:
        step = self.in_flight.popleft()
        token_ids = step.read()
        changed = []
        for row, token_id in zip(step.batch.rows, token_ids, strict=True):
            account = self.account_of(row.request)
            if account.finish_reason is not None:
                continue
            if row.samples:
                account.output.append(token_id)
                changed.append(row.request)
                if token_id in row.request.stop_token_ids:
                    self.end(account, "stop")
                elif len(account.output) == row.request.max_new_tokens:
                    self.end(account, "length")
            elif row.request.max_new_tokens == 0 and row.start + row.num_tokens == len(row.request.prompt_token_ids):
                changed.append(row.request)
                self.end(account, "length")
        assert self.scheduler.commit(step.batch, token_ids) == changed

    def teardown(self) -> None:
        """Nobody starves: with no more arrivals, all end within the steps that one after the other would take."""
        if not hasattr(self, "scheduler"):  # the example was given up before its start
            return
        self.serve(times=sum(account.num_positions for account in self.unfinished) + 1, depth=0)
        self.accounts_agree()
        self.each_request_gets_the_tokens_that_it_gets_alone()
        assert not self.unfinished
        assert self.scheduler.num_free_pages == self.config.group_pages
        self.counters_agree()
        self.all_slots_are_free()

    # What must hold of a step

    def check_preempted(self, were_running: list[Account]) -> None:
        """Those that arrived last have lost all they held, and nobody else."""
        for account in were_running:
            if account.request.num_preemptions > account.num_preemptions:
                account.num_preemptions += 1
                account.status = RequestStatus.WAITING
        left = [account for account in were_running if account.status is RequestStatus.RUNNING]
        assert left == were_running[: len(left)]

    def check_decode_row(self, row: ScheduledRow, account: Account) -> None:
        assert (row.token_ids, row.num_tokens, row.samples) == (None, 1, True)
        assert (row.start, row.sample_index) == (account.num_launched, account.num_drawn)
        account.num_launched += 1
        account.num_drawn += 1
        self.check_tables(row)

    def check_pieces(self, pieces: tuple[ScheduledRow, ...], num_chunk_tokens: int) -> None:
        """Prompts under way go first, then the waiting ones, all in order of arrival, and none is left out."""
        blocks = [block for piece in pieces for block in range(0, piece.num_tokens, self.config.block_q)]
        assert num_chunk_tokens == len(blocks) * self.config.block_q <= self.config.max_chunk_tokens
        left = deque(pieces)
        for account in self.running:
            if account.num_launched < account.num_to_read and left and left[0].request is account.request:
                self.check_piece(left.popleft(), account)
        for row in left:
            self.admit(row, self.waiting[0])
            self.check_piece(row, self.account_of(row.request))
        if num_chunk_tokens < self.config.max_chunk_tokens:
            stuck = [account for account in self.running if account.num_launched < account.num_to_read]
            assert not stuck or 0 in self.scheduler.num_free_pages
            self.check_head_of_the_waiting()

    def check_piece(self, row: ScheduledRow, account: Account) -> None:
        assert row.start == account.num_launched
        assert row.num_tokens > 0
        assert list(row.token_ids) == account.known[row.start :][: row.num_tokens]
        account.num_launched += row.num_tokens
        ends_prompt = account.num_launched == account.num_to_read
        assert row.samples == (ends_prompt and row.request.max_new_tokens > 0)
        assert row.sample_index == account.num_drawn
        account.num_drawn += row.samples
        self.check_tables(row)

    def admit(self, row: ScheduledRow, account: Account) -> None:
        """The head of the waiting, from the end of what is cached; a token is left to compute."""
        assert row.request is account.request
        assert account.num_pending == 0
        assert row.start % self.config.page_size == 0
        assert row.start < len(account.known)
        assert self.config.prefix_cache or row.start == 0
        if account.num_preemptions == 0:
            assert account.request.num_cached_tokens == row.start
        account.status = RequestStatus.RUNNING
        account.num_launched, account.num_to_read = row.start, len(account.known)

    def check_head_of_the_waiting(self) -> None:
        """It waits for a slot, for a token of its own, or for pages: never where all could run to their ends."""
        if self.waiting and len(self.running) < self.config.max_num_seqs and self.waiting[0].num_pending == 0:
            assert not self.all_can_grow([*self.running, self.waiting[0]])

    def check_tables(self, row: ScheduledRow) -> None:
        """Just the pages that the row's tokens are written to or see."""
        size = self.config.page_size
        for window, width, table in zip(
            self.config.windows, self.config.table_widths, row.request.page_tables, strict=True
        ):
            first_seen = 0 if window is None else max(0, row.start - window + 1)
            pages = {position // size for position in range(first_seen, row.start + row.num_tokens)}
            assert (table.first_page, len(table.pages)) == (min(pages), len(pages))
            assert len(pages) <= width

    # What must hold at all times

    @invariant()
    def accounts_agree(self) -> None:
        assert self.scheduler.num_waiting == len(self.waiting)
        assert self.scheduler.num_running == len(self.running) <= self.config.max_num_seqs
        assert self.scheduler.has_unfinished == bool(self.unfinished)
        for account in self.accounts:
            assert account.request.status is account.status
            assert account.request.finish_reason == account.finish_reason
            assert account.request.output_token_ids == account.output
            assert account.request.num_preemptions == account.num_preemptions <= self.most_preemptions
            if account.status is not RequestStatus.RUNNING:
                assert (account.request.slot, account.request.page_tables) == (None, [])

    @invariant()
    def each_request_gets_the_tokens_that_it_gets_alone(self) -> None:
        for account in self.accounts:
            assert account.output == account.expected[: len(account.output)]

    @invariant()
    def all_that_run_arrived_before_all_that_wait(self) -> None:
        if self.running and self.waiting:
            assert self.running[-1].number < self.waiting[0].number

    @invariant()
    def pages_that_no_table_names_are_free(self) -> None:
        tables = [account.request.page_tables for account in self.running]
        for group, (size, num_free) in enumerate(
            zip(self.config.group_pages, self.scheduler.num_free_pages, strict=True)
        ):
            held = {page for groups in tables for page in groups[group].pages}
            assert held <= set(range(1, size + 1))
            assert num_free == size - len(held)

    @invariant()
    def each_slot_has_one_holder(self) -> None:
        slots = [account.request.slot for account in self.running]
        assert len(set(slots)) == len(slots)
        assert set(slots) <= set(range(self.config.max_num_seqs))

    def counters_agree(self) -> None:
        counters = self.scheduler.counters
        assert counters.num_preemptions == sum(account.num_preemptions for account in self.accounts)
        assert counters.num_cached_tokens == sum(account.request.num_cached_tokens for account in self.accounts)
        assert counters.num_resumptions <= counters.num_preemptions

    # The account itself

    @property
    def running(self) -> list[Account]:
        return [account for account in self.unfinished if account.status is RequestStatus.RUNNING]

    @property
    def waiting(self) -> list[Account]:
        return [account for account in self.unfinished if account.status is RequestStatus.WAITING]

    @property
    def most_preemptions(self) -> int:
        """Before its n-th preemption a request was admitted with room to grow by page_size * 4**(n - 1), less than all.

        For whoever has room for all, and so have those before it, is not preempted any more.
        """
        return max(0, math.ceil(math.log(MAX_MODEL_LEN / self.config.page_size, 4)))

    def account_of(self, request: Request) -> Account:
        return next(account for account in self.accounts if account.request is request)

    def fits_alone(self, account: Account) -> bool:
        """Whether it comes to its end by steps of one token."""
        least = self.most_pages(account, of_window=1)
        return all(num_pages <= there for num_pages, there in zip(least, self.config.group_pages, strict=True))

    def all_can_grow(self, accounts: list[Account]) -> bool:
        """Whether all have room for all they may ever draw, even if they share nothing and bring a full chunk."""
        worst = [self.most_pages(account, of_window=2) for account in accounts]
        chunk = math.ceil(self.config.max_chunk_tokens / self.config.page_size)
        return all(
            sum(num_pages) + (0 if window is None else chunk) <= there
            for window, there, *num_pages in zip(self.config.windows, self.config.group_pages, *worst, strict=True)
        )

    def most_pages(self, account: Account, of_window: int) -> list[int]:
        """For each group the pages of all positions, or where they are fewer those of the window and some more."""
        size = self.config.page_size
        all_pages = len({position // size for position in range(account.num_positions)})
        return [
            all_pages if window is None else min(all_pages, math.ceil(window / size) + of_window)
            for window in self.config.windows
        ]

    def end(self, account: Account, reason: str) -> None:
        self.unfinished.remove(account)
        account.status, account.finish_reason = RequestStatus.FINISHED, reason

    def all_slots_are_free(self) -> None:
        """Fill the scheduler once more: as many as ever can run at the same time."""
        size = min(self.config.max_num_seqs, *self.config.group_pages)
        for i in range(size):
            self.scheduler.add(Request(f"last-{i}", [1], SamplingParams(), frozenset(), 1, seed=0))
        for _ in range(size):
            self.scheduler.schedule()
        assert self.scheduler.num_running == size


class SchedulerMachineForLong(SchedulerMachine):
    pass


# Times what the profile says, which is 100 unless another one is loaded.
SchedulerMachine.TestCase.settings = settings(
    max_examples=2 * settings().max_examples, stateful_step_count=30, deadline=None
)
SchedulerMachineForLong.TestCase.settings = settings(SchedulerMachine.TestCase.settings, max_examples=2000)
TestScheduler = SchedulerMachine.TestCase
TestSchedulerForLong = pytest.mark.slow(SchedulerMachineForLong.TestCase)
