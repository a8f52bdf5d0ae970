"""A runner whose tokens follow from what its pages hold, so that a wrong page gives another token.

Its model has two layers. The first keeps of each token a digest of the token, its position and the request's identity;
the second a digest of all that the token sees of the first; the next token is a digest of all that the last one sees of
the second. Both layers keep their cells in the pages of every cache group, and a token sees as much of a group as the
group's window shows. So a lost token, a stale page or one of another request changes what is drawn.

What is forbidden is not drawn: the next larger token is that is not, after the largest the smallest. Where a request is
not greedy, its seed changes each token. The log-probability of every token is ``logprob``, whatever comes before it.

As on a device, steps run in the order of their launch, and in a step each layer is written for all rows before any row
reads it. It needs no jax, as the scheduler does not.
"""

import zlib
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from jaxinfer.batch import Batch, ScheduledRow
from jaxinfer.config import EngineConfig
from jaxinfer.logprobs import RankedLogprobs
from jaxinfer.request import PageTable
from jaxinfer.sampling_params import MAX_LOGPROBS
from jaxinfer.token_masks import TokenBits

VOCAB_SIZE = 1009
NUM_LAYERS = 2


def expected_tokens(
    prompt: Sequence[int],
    num_tokens: int,
    windows: Sequence[int | None] = (None,),
    identity: Sequence[str] = (),
    forbidden: Callable[[list[int]], Collection[int]] = lambda output: (),
    seed: int | None = None,
) -> list[int]:
    """What the fake model writes after ``prompt`` where nothing is paged, shared, cut up or preempted.

    ``forbidden`` tells of an output so far what may not follow it; ``seed``: of a request that is not greedy.
    """
    tokens, layers = list(prompt), tuple([] for _ in range(NUM_LAYERS))
    for position in range(len(prompt) + num_tokens - 1):
        value = _embed(identity, position, tokens[position])
        for cells in layers:
            cells.append(value)
            value = _digest(cell for window in windows for cell in (cells if window is None else cells[-window:]))
        if position >= len(prompt) - 1:
            tokens.append(_draw(value, forbidden(tokens[len(prompt) :]), seed))
    return tokens[len(prompt) :]


def _embed(identity: Sequence[str], position: int, token: int) -> int:
    return _digest((*map(_text_digest, identity), position, token))


def logprob(token_id: int) -> float:
    """Smaller for larger ids, so that the most likely tokens are 0, 1, 2 and so on."""
    return -token_id / 64  # which float32 holds exactly


def _draw(value: int, forbidden: Collection[int], seed: int | None) -> int:
    if seed is not None:
        value = _digest((value, seed >> 32, seed & 0xFFFFFFFF))
    if not forbidden:  # as nearly always
        return value % VOCAB_SIZE
    return next(token for step in range(VOCAB_SIZE) if (token := (value + step) % VOCAB_SIZE) not in forbidden)


def forbidden_tokens(words: TokenBits | None) -> set[int]:
    """The tokens whose bits are set."""
    if words is None:
        return set()
    return set(np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")[:VOCAB_SIZE]).tolist())


def _text_digest(text: str) -> int:
    return zlib.crc32(text.encode())


def _digest(values: Iterable[int]) -> int:
    return zlib.crc32(array("q", values).tobytes())


@dataclass(eq=False)
class FakeStep:
    """A launched step that computes its tokens when it is read, as a device that is far behind the host."""

    batch: Batch
    runner: "FakeRunner"
    token_ids: list[int] = field(default_factory=list)

    def read(self) -> list[int]:
        self.token_ids = self.runner.run_until(self)
        return self.token_ids

    def logprobs(self) -> RankedLogprobs:
        return _ranked(self.token_ids)

    def prompt_logprobs(self, row: int) -> RankedLogprobs:
        start, num_tokens = self.batch.rows[row].start, self.batch.rows[row].num_tokens
        return _ranked(self.batch.rows[row].request.prompt_token_ids[start + 1 : start + num_tokens + 1])


def _ranked(token_ids: Sequence[int]) -> RankedLogprobs:
    top = np.tile(np.arange(MAX_LOGPROBS, dtype=np.int32), (len(token_ids), 1))
    drawn = np.array(token_ids, np.int32)
    return RankedLogprobs(np.float32(-drawn / 64), drawn + 1, top, np.float32(-top / 64))


@dataclass(frozen=True)
class _LaunchedRow:
    """A row as it was at its launch: the request's slot and tables change later."""

    row: ScheduledRow
    slot: int
    tables: list[PageTable]

    @property
    def end(self) -> int:
        return self.row.start + self.row.num_tokens


@dataclass
class _Launched:
    step: FakeStep
    rows: list[_LaunchedRow]
    forbidden: list[set[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.forbidden = [set() for _ in self.rows]


class FakeRunner:
    """Steps are packed when launched and run in order, as late as they can."""

    vocab_size = VOCAB_SIZE

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._layers = [
            [[0] * (config.page_size * (1 + num_pages)) for num_pages in config.group_pages] for _ in range(NUM_LAYERS)
        ]
        self._last_tokens = [0] * config.max_num_seqs
        self._launched: deque[_Launched] = deque()
        self.batches: list[Batch] = []

    def forward(self, batch: Batch) -> FakeStep:
        step = FakeStep(batch, self)
        rows = []
        for row in batch.rows:
            assert row.request.slot is not None
            tables = [PageTable(table.first_page, table.pages[:]) for table in row.request.page_tables]
            rows.append(_LaunchedRow(row, row.request.slot, tables))
        self._launched.append(_Launched(step, rows))
        self.batches.append(batch)
        return step

    def sample(self, step: FakeStep, forbidden: Sequence[TokenBits | None] = ()) -> FakeStep:
        launched = next(launched for launched in self._launched if launched.step is step)
        launched.forbidden[: len(forbidden)] = [forbidden_tokens(words) for words in forbidden]
        return step

    def run_until(self, wanted: FakeStep) -> list[int]:
        while True:
            launched = self._launched.popleft()
            tokens = self._run(launched.rows, launched.forbidden)
            if launched.step is wanted:
                return tokens

    def _run(self, rows: list[_LaunchedRow], forbidden: list[set[int]]) -> list[int]:
        values = [self._embed_row(row) for row in rows]
        for groups in self._layers:
            for row, new in zip(rows, values, strict=True):
                self._write(groups, row, new)
            values = [self._read(groups, row) for row in rows]
        tokens = [
            _draw(new[-1], never, None if row.row.request.params.greedy else row.row.request.seed)
            for row, new, never in zip(rows, values, forbidden, strict=True)
        ]
        for row, token in zip(rows, tokens, strict=True):
            if row.row.samples:
                self._last_tokens[row.slot] = token
        return tokens

    def _embed_row(self, row: _LaunchedRow) -> list[int]:
        token_ids = [self._last_tokens[row.slot]] if row.row.token_ids is None else row.row.token_ids
        identity = row.row.request.cache_identity
        return [_embed(identity, position, token) for position, token in enumerate(token_ids, start=row.row.start)]

    def _write(self, groups: list[list[int]], row: _LaunchedRow, values: list[int]) -> None:
        for cells, table in zip(groups, row.tables, strict=True):
            places = self._places(table)
            for position, value in enumerate(values, start=row.row.start):
                cells[places[position]] = value

    def _read(self, groups: list[list[int]], row: _LaunchedRow) -> list[int]:
        """For each token of the row the digest of all that it sees of one layer."""
        seen: list[list[int]] = [[] for _ in range(row.row.num_tokens)]
        for window, cells, table in zip(self._config.windows, groups, row.tables, strict=True):
            first = 0 if window is None else max(0, row.row.start - window + 1)
            places = self._places(table)
            content = [cells[places[position]] for position in range(first, row.end)]
            for i, position in enumerate(range(row.row.start, row.end)):
                begin = 0 if window is None else max(0, position - window + 1)
                seen[i] += content[begin - first : position + 1 - first]
        return [_digest(values) for values in seen]

    def _places(self, table: PageTable) -> dict[int, int]:
        """For each position in the table the cell that is its own."""
        size = self._config.page_size
        cells = (page * size + offset for page in table.pages for offset in range(size))
        return dict(enumerate(cells, start=table.first_page * size))
