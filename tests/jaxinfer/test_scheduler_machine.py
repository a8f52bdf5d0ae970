"""The scheduler under random arrivals, aborts, stops and launch depths, against a model that only counts.

The machine keeps its own account of every request, written from the rules and not from the scheduler: which positions
have been launched, which tokens must be in the output, why it ended. After each action the scheduler's slots, pages and
queues must agree with that account.
"""

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jaxinfer.config import EngineConfig
from jaxinfer.request import Request, RequestStatus
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.scheduler import Batch, ScheduledRow, Scheduler

MAX_MODEL_LEN = 24
TOKENS = st.integers(0, 4)


@dataclass(eq=False)
class Account:
    """What must be true of one request."""

    request: Request
    num_launched: int = 0  # positions of the sequence that launched rows wrote
    num_drawn: int = 0  # samples of launched rows
    output: list[int] = field(default_factory=list)
    finish_reason: str | None = None

    @property
    def num_prompt(self) -> int:
        return len(self.request.prompt_token_ids)

    @property
    def may_decode(self) -> bool:
        return self.num_launched >= self.num_prompt and self.num_drawn < self.request.max_new_tokens


def pages_of(num_positions: int, page_size: int) -> int:
    return len({position // page_size for position in range(num_positions)})


def worst_case(num_prompt: int, max_new: int, page_size: int) -> int:
    """Pages of the prompt and of all drawn tokens but the last."""
    drawn_and_fed = range(max_new)[:-1]
    return pages_of(num_prompt + len(drawn_and_fed), page_size)


class SchedulerMachine(RuleBasedStateMachine):
    """Accounts move from ``waiting`` to ``running`` to ``finished``, as the rules say they must."""

    @initialize(
        max_num_seqs=st.integers(1, 4),
        num_kv_pages=st.integers(2, 16),
        page_size=st.sampled_from([1, 3, 4]),
        block_q=st.sampled_from([1, 2, 4]),
        blocks=st.integers(1, 4),
    )
    def start(self, max_num_seqs: int, num_kv_pages: int, page_size: int, block_q: int, blocks: int) -> None:
        self.config = EngineConfig(
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=max_num_seqs,
            max_chunk_tokens=block_q * blocks,
            page_size=page_size,
            num_kv_pages=num_kv_pages,
            block_q=block_q,
        )
        self.scheduler = Scheduler(self.config)
        self.waiting: deque[Account] = deque()  # in order of arrival
        self.running: list[Account] = []  # in order of admission
        self.finished: list[Account] = []
        self.in_flight: deque[Batch] = deque()

    # What happens

    @rule(
        num_prompt=st.one_of(st.integers(0, MAX_MODEL_LEN + 1), st.integers(1, 6)),
        max_new=st.integers(0, 8),
        stop_token_ids=st.frozensets(TOKENS, max_size=2),
    )
    def add(self, num_prompt: int, max_new: int, stop_token_ids: frozenset[int]) -> None:
        number = len(self.waiting) + len(self.running) + len(self.finished)
        max_new = max(0, min(max_new, MAX_MODEL_LEN - num_prompt))
        prompt = [10 * number + i for i in range(num_prompt)]
        request = Request(f"r{number}", prompt, SamplingParams(), stop_token_ids, max_new, seed=0)
        fits = worst_case(num_prompt, max_new, self.config.page_size) <= self.config.num_kv_pages
        if fits and 1 <= num_prompt <= MAX_MODEL_LEN:
            self.scheduler.add(request)
            self.waiting.append(Account(request))
        else:
            with pytest.raises(ValueError, match=request.request_id):
                self.scheduler.add(request)

    @precondition(lambda self: self.waiting or self.running)
    @rule(data=st.data())
    def add_with_an_id_in_use(self, data: st.DataObject) -> None:
        used = data.draw(st.sampled_from([*self.waiting, *self.running])).request.request_id
        with pytest.raises(ValueError, match=used):
            self.scheduler.add(Request(used, [1], SamplingParams(), frozenset(), 1, seed=0))

    @precondition(lambda self: self.waiting or self.running or self.finished)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        account = data.draw(st.sampled_from([*self.running, *self.waiting, *self.finished]))
        returned = self.scheduler.abort(account.request.request_id)
        if account.finish_reason is None:
            assert returned is account.request
            self.end(account, "abort")
        else:
            assert returned is None

    @rule()
    def schedule(self) -> None:
        must_decode = {account.request for account in self.running if account.may_decode}
        prefills = [account for account in self.running if account.num_launched < account.num_prompt]
        batch = self.scheduler.schedule()
        rows = batch.rows if batch else ()
        num_decode_rows = batch.num_decode_rows if batch else 0
        num_chunk_tokens = batch.num_chunk_tokens if batch else 0
        assert batch is None or rows

        assert {row.request for row in rows[:num_decode_rows]} == must_decode
        assert num_decode_rows == len(must_decode)
        for row in rows[:num_decode_rows]:
            self.check_decode_row(row)

        served = prefills[: len(rows) - num_decode_rows]  # a prompt under way goes first, then by arrival
        while len(served) < len(rows) - num_decode_rows:
            served.append(self.waiting.popleft())
            self.running.append(served[-1])
        for row, account in zip(rows[num_decode_rows:], served, strict=True):
            self.check_piece(row, account)
        self.check_budget(rows[num_decode_rows:], num_chunk_tokens)
        self.check_nobody_left_out(num_chunk_tokens)
        if batch:
            self.in_flight.append(batch)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        num_rows = len(self.in_flight[0].rows)
        self.commit_tokens(data.draw(st.lists(TOKENS, min_size=num_rows, max_size=num_rows)))

    def teardown(self) -> None:
        """Nobody starves: with no more arrivals, all end within the steps that one after the other would take."""
        if not hasattr(self, "scheduler"):  # the example was given up before its start
            return
        self.commit_all()
        unfinished = [*self.waiting, *self.running]
        for _ in range(sum(account.num_prompt + account.request.max_new_tokens for account in unfinished)):
            self.schedule()
            self.commit_all()
            self.accounts_agree()
        assert not self.scheduler.has_unfinished
        assert self.scheduler.num_free_pages == self.config.num_kv_pages
        self.all_slots_are_free()

    # What must hold of a step

    def check_decode_row(self, row: ScheduledRow) -> None:
        account = self.account_of(row.request)
        assert (row.token_ids, row.num_tokens, row.samples) == (None, 1, True)
        assert (row.start, row.sample_index) == (account.num_launched, account.num_drawn)
        account.num_launched += 1
        account.num_drawn += 1

    def check_piece(self, row: ScheduledRow, account: Account) -> None:
        assert row.request is account.request
        assert row.start == account.num_launched
        assert row.num_tokens > 0
        assert list(row.token_ids) == row.request.prompt_token_ids[row.start :][: row.num_tokens]
        account.num_launched += row.num_tokens
        ends_prompt = account.num_launched == account.num_prompt
        assert row.samples == (ends_prompt and row.request.max_new_tokens > 0)
        assert row.sample_index == 0
        account.num_drawn += row.samples

    def check_budget(self, pieces: tuple[ScheduledRow, ...], num_chunk_tokens: int) -> None:
        block_q = self.config.block_q
        blocks = [block for piece in pieces for block in range(0, piece.num_tokens, block_q)]
        assert num_chunk_tokens == len(blocks) * block_q <= self.config.max_chunk_tokens

    def check_nobody_left_out(self, num_chunk_tokens: int) -> None:
        """With budget left, every prompt under way has been served whole and the head waits for room alone."""
        if num_chunk_tokens == self.config.max_chunk_tokens:
            return
        assert all(account.num_launched >= account.num_prompt for account in self.running)
        if self.waiting and len(self.running) < self.config.max_num_seqs:
            assert self.promised([*self.running, self.waiting[0]]) > self.config.num_kv_pages

    def commit_all(self) -> None:
        while self.in_flight:
            self.commit_tokens([4] * len(self.in_flight[0].rows))

    def commit_tokens(self, token_ids: list[int]) -> None:
        batch = self.in_flight.popleft()
        changed = []
        for row, token_id in zip(batch.rows, token_ids, strict=True):
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
            elif row.request.max_new_tokens == 0 and row.start + row.num_tokens == account.num_prompt:
                changed.append(row.request)
                self.end(account, "length")
        assert self.scheduler.commit(batch, token_ids) == changed

    # What must hold at all times

    @invariant()
    def accounts_agree(self) -> None:
        assert self.scheduler.num_waiting == len(self.waiting)
        assert self.scheduler.num_running == len(self.running) <= self.config.max_num_seqs
        assert self.scheduler.has_unfinished == bool(self.waiting or self.running)
        for status, accounts in (
            (RequestStatus.WAITING, self.waiting),
            (RequestStatus.RUNNING, self.running),
            (RequestStatus.FINISHED, self.finished),
        ):
            for account in accounts:
                assert account.request.status is status
                assert account.request.finish_reason == account.finish_reason
                assert account.request.output_token_ids == account.output
                assert len(account.output) <= account.request.max_new_tokens

    @invariant()
    def each_page_has_one_holder(self) -> None:
        owned = [page for account in self.running for page in account.request.pages]
        assert len(set(owned)) == len(owned)
        assert set(owned) <= set(range(1, self.config.num_kv_pages + 1))
        assert self.scheduler.num_free_pages == self.config.num_kv_pages - len(owned)
        assert self.promised(self.running) <= self.config.num_kv_pages

    @invariant()
    def each_request_holds_the_pages_of_its_tokens(self) -> None:
        for account in self.running:
            assert len(account.request.pages) == pages_of(account.num_launched, self.config.page_size)
        assert not any(account.request.pages for account in [*self.waiting, *self.finished])

    @invariant()
    def each_slot_has_one_holder(self) -> None:
        slots = [account.request.slot for account in self.running]
        assert len(set(slots)) == len(slots)
        assert set(slots) <= set(range(self.config.max_num_seqs))
        assert all(account.request.slot is None for account in [*self.waiting, *self.finished])

    # The account itself

    def account_of(self, request: Request) -> Account:
        return next(account for account in [*self.running, *self.finished] if account.request is request)

    def promised(self, accounts: list[Account]) -> int:
        requests = [account.request for account in accounts]
        return sum(worst_case(len(r.prompt_token_ids), r.max_new_tokens, self.config.page_size) for r in requests)

    def end(self, account: Account, reason: str) -> None:
        (self.waiting if account in self.waiting else self.running).remove(account)
        self.finished.append(account)
        account.finish_reason = reason

    def all_slots_are_free(self) -> None:
        """Fill the scheduler once more: as many as ever can run at the same time."""
        size = min(self.config.max_num_seqs, self.config.num_kv_pages)
        for i in range(size):
            self.scheduler.add(Request(f"last-{i}", [1], SamplingParams(), frozenset(), 1, seed=0))
        for _ in range(size):
            self.scheduler.schedule()
        assert self.scheduler.num_running == size


SchedulerMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestScheduler = SchedulerMachine.TestCase
