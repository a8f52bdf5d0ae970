"""A runner whose tokens can be computed by hand: it keeps a paged cache as a real one does, of token ids.

The next token is ``(sum of all tokens so far + how many they are) % vocab_size``. The sum is taken over what the pages
hold, so a wrong page, a lost token or a token of another request gives another answer. A cache group with a window has
pages of its own and sums what the window sees; the sums of all groups are added, each with a factor of its own.
"""

from collections import deque
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from jaxinfer.batch import Batch, ScheduledRow
from jaxinfer.config import EngineConfig
from jaxinfer.engine import Engine
from jaxinfer.request import PageTable

VOCAB_SIZE = 97


def expected_tokens(prompt: Sequence[int], num_tokens: int, windows: Sequence[int | None] = (None,)) -> list[int]:
    """What the fake model writes after ``prompt``."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        sums = [sum(tokens if window is None else tokens[-window:]) for window in windows]
        tokens.append(_next_token(sums, len(tokens)))
    return tokens[len(prompt) :]


def _next_token(sums: Sequence[int], num_tokens: int) -> int:
    return (sum(factor * total for factor, total in enumerate(sums, start=1)) + num_tokens) % VOCAB_SIZE


@dataclass(frozen=True)
class FakeStep:
    """A launched step that computes its tokens when it is read, as a device that is far behind the host."""

    batch: Batch
    runner: "FakeRunner"

    def read(self) -> list[int]:
        return self.runner.run_until(self)


class FakeRunner:
    """Steps are packed when launched and run in order, as late as they can."""

    vocab_size = VOCAB_SIZE

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._pages = [[[0] * config.page_size for _ in range(1 + num_pages)] for num_pages in config.group_pages]
        self._last_tokens = [0] * config.max_num_seqs
        self._launched: deque[tuple[FakeStep, list[tuple[ScheduledRow, int, list[PageTable]]]]] = deque()
        self.batches: list[Batch] = []

    def launch(self, batch: Batch) -> FakeStep:
        step = FakeStep(batch, self)
        rows = []
        for row in batch.rows:
            assert row.request.slot is not None
            rows.append((row, row.request.slot, deepcopy(row.request.page_tables)))
        self._launched.append((step, rows))
        self.batches.append(batch)
        return step

    def run_until(self, wanted: FakeStep) -> list[int]:
        while True:
            step, rows = self._launched.popleft()
            tokens = [self._run(*row) for row in rows]
            if step is wanted:
                return tokens

    def _run(self, row: ScheduledRow, slot: int, tables: list[PageTable]) -> int:
        new = [self._last_tokens[slot]] if row.token_ids is None else row.token_ids
        count = row.start + len(new)
        sums = []
        for window, table, pages in zip(self._config.windows, tables, self._pages, strict=True):
            places = {
                position: table.pages[position // self._config.page_size - table.first_page]
                for position in range(0 if window is None else max(0, row.start - window + 1), count)
            }
            for position, token in enumerate(new, start=row.start):
                pages[places[position]][position % self._config.page_size] = token
            seen = range(0 if window is None else max(0, count - window), count)
            sums.append(sum(pages[places[position]][position % self._config.page_size] for position in seen))
        token = _next_token(sums, count)
        if row.samples:
            self._last_tokens[slot] = token
        return token


def fake_engine(*, eos_token_ids: Sequence[int] = (), **limits: Any) -> Engine:
    """The real engine and scheduler over the fake runner."""
    small = {"max_model_len": 64, "num_kv_pages": 32, "page_size": 4, "max_num_seqs": 4, "max_chunk_tokens": 16}
    config = EngineConfig(**(small | limits))
    return Engine(FakeRunner(config), config, tokenizer=None, eos_token_ids=eos_token_ids)  # type: ignore[arg-type]
