"""``jaxinfer bench serve`` without its command line: warm-up, then a run at each rate."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from jaxinfer.bench.arrivals import arrival_times, check_arrivals
from jaxinfer.bench.load import Load, LoadRun
from jaxinfer.bench.summary import Summary, summarize
from jaxinfer.bench.target import Target
from jaxinfer.bench.token_counts import FEW_WORDS, MORE_WORDS, TokenCounts, made_up_prompt
from jaxinfer.bench.workload import Ask, Workload
from jaxinfer.value_checks import check_int, check_number


class WarmUpError(Exception):
    """The server does not answer the first requests, so that there is nothing to measure."""


def check_settings(
    *,
    rates: Sequence[float],
    burstiness: float,
    num_prompts: int,
    num_warmups: int,
    max_concurrency: int | None,
    timeout: float,
    seed: int,
) -> None:
    """Raises ValueError unless ``ServeBenchmark`` takes these; the message names the value and what is allowed."""
    for rate in rates:
        check_arrivals(rate, burstiness)
    check_int("num_prompts", num_prompts, "a whole number >= 1", 1)
    check_int("num_warmups", num_warmups, "a whole number >= 0", 0)
    if max_concurrency is not None:
        check_int("max_concurrency", max_concurrency, "a whole number >= 1", 1)
    check_number("timeout", timeout, "a number of seconds > 0", lambda value: value > 0)
    check_int("seed", seed, "a whole number >= 0", 0)


@dataclass(frozen=True, kw_only=True)
class ServeBenchmark:
    """All that is to be done; ``check_settings`` looks at its numbers.

    Attributes:
        target: who is asked.
        workload: what.
        rates: requests per second of each run; inf for all at once.
        burstiness: as in ``arrival_times``.
        num_prompts: requests of each run.
        num_warmups: requests before the first run, one after the other and not counted.
        max_concurrency: as in ``Load``.
        timeout: as in ``Load``.
        seed: the same arrivals and the same made-up prompts for the same seed; each rate has others.
        targets: as ``parse_targets`` gives them.
    """

    target: Target
    workload: Workload
    rates: Sequence[float]
    burstiness: float = 1.0
    num_prompts: int = 100
    num_warmups: int = 1
    max_concurrency: int | None = None
    timeout: float = 600.0
    seed: int = 0
    targets: Mapping[str, float] = field(default_factory=dict)

    async def run(self, stop: asyncio.Event, on_end: Callable[[int, int], None]) -> list[Summary]:
        """The summaries of the runs in the order of ``rates``; with ``stop`` set, of those that had begun.

        Args:
            stop: ends the run that is under way, and lets none follow.
            on_end: as in ``Load.run``.

        Raises:
            WarmUpError: a request before the first run was not answered; the message has what was said.
        """
        counts = await self._warm_up(stop)
        summaries = []
        for number, rate in enumerate(self.rates):
            if stop.is_set():
                break
            asks = self.workload.asks(self.num_prompts, counts, self._rng(number, "prompts"))
            arrivals = arrival_times(self.num_prompts, rate, self.burstiness, self._rng(number, "arrivals"))
            load = Load(
                target=self.target,
                asks=asks,
                arrivals=arrivals,
                max_concurrency=self.max_concurrency,
                timeout=self.timeout,
            )
            summaries.append(summarize(await load.run(stop, on_end), rate, self.targets))
        return summaries

    async def _warm_up(self, stop: asyncio.Event) -> TokenCounts:
        """What the server makes of made-up words, if there will be any."""
        counts, rng = TokenCounts(), self._rng(len(self.rates), "prompts")
        if self.workload.made_up:
            asks = [Ask(made_up_prompt(num_words, rng), 1) for num_words in (FEW_WORDS, MORE_WORDS)]
            match [record.prompt_tokens for record in (await self._one_by_one(asks, stop)).records]:
                case [int(few), int(more)]:
                    counts = TokenCounts.measured(few, more)
        if self.num_warmups and not stop.is_set():
            await self._one_by_one(self.workload.asks(self.num_warmups, counts, rng), stop)
        return counts

    async def _one_by_one(self, asks: Sequence[Ask], stop: asyncio.Event) -> LoadRun:
        load = Load(
            target=self.target, asks=asks, arrivals=np.zeros(len(asks)), max_concurrency=1, timeout=self.timeout
        )
        run = await load.run(stop)
        for record in run.records:
            if record.error is not None:
                raise WarmUpError(f"a request before the first run was not answered: {record.error}: {record.message}")
        return run

    def _rng(self, number: int, use: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, number, *use.encode()])
