"""A run: requests sent at their times, however many are still under way."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from jaxtyping import Float64

from jaxinfer.bench.record import RequestRecord
from jaxinfer.bench.target import Target
from jaxinfer.bench.timed_call import timed_call
from jaxinfer.bench.workload import Ask

TIMED_OUT = "timed out"

_KEPT_ALIVE = 2.0
"""Seconds that an idle connection is kept for the next request: less than the 5 after which uvicorn closes it, so that
no request is sent on one that is just being closed."""


@dataclass
class LoadRun:
    """What has come of a run.

    Attributes:
        records: of all requests that were sent, in that order.
        seconds: from its beginning to the end of the last request, or to where it was stopped.
        cpu_share: of one core, what the client took meanwhile; near 1 it is the client that is measured.
        stopped: whether it was, before all requests had ended.
    """

    records: list[RequestRecord] = field(default_factory=list)
    seconds: float = 0.0
    cpu_share: float = 0.0
    stopped: bool = False


@dataclass(frozen=True, kw_only=True)
class Load:
    """A run to come.

    Attributes:
        target: who is asked.
        asks: what, in the order of their times; one or more.
        arrivals: seconds from the beginning, as ``arrival_times`` gives them.
        max_concurrency: requests under way at once; more wait in the client. None: any number.
        timeout: seconds that a request may take.
    """

    target: Target
    asks: Sequence[Ask]
    arrivals: Float64[np.ndarray, " number"]
    max_concurrency: int | None = None
    timeout: float = 600.0

    async def run(self, stop: asyncio.Event, on_end: Callable[[int, int], None] = lambda done, total: None) -> LoadRun:
        """Send them all and wait for their ends, or until ``stop`` is set.

        Args:
            stop: drops what is under way; the client leaves those requests.
            on_end: is given after each request how many have ended, and of how many.
        """
        requests = [self.target.request(ask) for ask in self.asks]
        run = LoadRun()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=_KEPT_ALIVE)
        # Not through the proxies that the environment may name: they would be measured too.
        async with httpx.AsyncClient(limits=limits, timeout=None, trust_env=False) as client:
            sending = _Sending(self, run, client, on_end)
            cpu_begin = time.process_time()
            run.stopped = await _cut_short(stop, sending.send_all(requests))
            now = sending.clock()
            run.cpu_share = (time.process_time() - cpu_begin) / now
        ends = [record.ended for record in run.records if record.ended is not None]
        run.seconds = now if run.stopped or not ends else max(ends)
        return run


async def _cut_short(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether ``stop`` was set before the work was done, which is cancelled then."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return True
        working.result()  # a fault of ours comes up here
        return False
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


class _Sending:
    """One run under way; its clock begins with it."""

    def __init__(self, load: Load, run: LoadRun, client: httpx.AsyncClient, on_end: Callable[[int, int], None]) -> None:
        self._load, self._run, self._client, self._on_end = load, run, client, on_end
        self._num_ended = 0
        limit = load.max_concurrency
        self._slots: AbstractAsyncContextManager[None] = nullcontext() if limit is None else asyncio.Semaphore(limit)
        self._begin = time.perf_counter()

    def clock(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._begin

    async def send_all(self, requests: Sequence[httpx.Request]) -> None:
        """Each at its time; returns when all have ended."""
        async with asyncio.TaskGroup() as group:
            for request, due in zip(requests, self._load.arrivals.tolist(), strict=True):
                await asyncio.sleep(due - self.clock())
                group.create_task(self._send(request, due))

    async def _send(self, request: httpx.Request, due: float) -> None:
        load = self._load
        async with self._slots:
            record = RequestRecord(due=due, sent=self.clock())
            self._run.records.append(record)
            try:
                async with asyncio.timeout(load.timeout):
                    await timed_call(self._client, load.target, request, record, self.clock)
            except TimeoutError:
                record.fail(TIMED_OUT, f"not answered within {load.timeout:g} s", self.clock())
        self._num_ended += 1
        self._on_end(self._num_ended, len(load.asks))
