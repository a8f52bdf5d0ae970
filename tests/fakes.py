"""A runner whose tokens can be computed by hand: it keeps a paged cache as a real one does, of token ids.

The next token is ``(sum of all tokens so far + how many they are) % vocab_size``. The sum is taken over what the pages
hold, so a wrong page, a lost token or a token of another request gives another answer.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from jaxinfer.config import EngineConfig
from jaxinfer.engine import Engine
from jaxinfer.scheduler import Batch, ScheduledRow

VOCAB_SIZE = 97


def expected_tokens(prompt: Sequence[int], num_tokens: int) -> list[int]:
    """What the fake model writes after ``prompt``."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append((sum(tokens) + len(tokens)) % VOCAB_SIZE)
    return tokens[len(prompt) :]


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
        self._pages = [[0] * config.page_size for _ in range(config.num_kv_pages + 1)]
        self._last_tokens = [0] * config.max_num_seqs
        self._launched: deque[tuple[FakeStep, list[tuple[ScheduledRow, int, tuple[int, ...]]]]] = deque()
        self.batches: list[Batch] = []

    def launch(self, batch: Batch) -> FakeStep:
        step = FakeStep(batch, self)
        rows = []
        for row in batch.rows:
            assert row.request.slot is not None
            rows.append((row, row.request.slot, tuple(row.request.pages)))
        self._launched.append((step, rows))
        self.batches.append(batch)
        return step

    def run_until(self, wanted: FakeStep) -> list[int]:
        while True:
            step, rows = self._launched.popleft()
            tokens = [self._run(*row) for row in rows]
            if step is wanted:
                return tokens

    def _run(self, row: ScheduledRow, slot: int, pages: tuple[int, ...]) -> int:
        new = [self._last_tokens[slot]] if row.token_ids is None else row.token_ids
        size = self._config.page_size
        for position, token in enumerate(new, start=row.start):
            self._pages[pages[position // size]][position % size] = token
        count = row.start + len(new)
        total = sum(self._pages[pages[position // size]][position % size] for position in range(count))
        token = (total + count) % VOCAB_SIZE
        if row.samples:
            self._last_tokens[slot] = token
        return token


def fake_engine(*, eos_token_ids: Sequence[int] = (), **limits: int) -> Engine:
    """The real engine and scheduler over the fake runner."""
    small = {"max_model_len": 64, "num_kv_pages": 32, "page_size": 4, "max_num_seqs": 4, "max_chunk_tokens": 16}
    config = EngineConfig(**(small | limits))
    return Engine(FakeRunner(config), config, tokenizer=None, eos_token_ids=eos_token_ids)  # type: ignore[arg-type]
