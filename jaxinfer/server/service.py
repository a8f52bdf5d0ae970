"""The engine as the server's calls see it: they are let in or refused, prepared, answered and ended here.

A call is one or more prompts with the same parameters. What takes time before it runs, to render, tokenize and read a
form, happens beside the event loop and the engine: in two threads, and forms in a third, since one form may take a
second and is made one at a time.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

from jaxinfer.admission import TooLongError
from jaxinfer.engine import Engine
from jaxinfer.llm import LLM
from jaxinfer.openai_api.errors import ApiError, failed, invalid, unavailable
from jaxinfer.outputs import RequestOutput
from jaxinfer.prompts import Prompt
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.server.engine_thread import EngineThread
from jaxinfer.server.mailbox import Mailbox
from jaxinfer.server.metrics import EarlyEnd, ServerMetrics
from jaxinfer.server.settings import ServerSettings
from jaxinfer.tracked import TrackedRequest

_PREPARING_THREADS = 2
_SECONDS_TO_STOP_PREPARING = 1.0


class InferenceService:
    """Answers calls with one model. All methods belong to the event loop's thread.

    Args:
        llm: whose engine nobody else uses from ``start`` on.
        settings: the limits.
        metrics: what is counted.
    """

    def __init__(self, llm: LLM, settings: ServerSettings, metrics: ServerMetrics) -> None:
        self.llm, self.settings, self.metrics = llm, settings, metrics
        self._thread = EngineThread(llm.engine, self._deliver, self._fail_all_of_engine)
        self._preparing = ThreadPoolExecutor(_PREPARING_THREADS, "prepare")
        self._preparing_forms = ThreadPoolExecutor(1, "forms")
        self._preparations = set[Future[Any]]()
        self._request_ids = map(str, itertools.count())
        self._calls: dict[str, tuple[Call, int]] = {}
        self._num_sequences = 0
        self._is_ending = self.is_stuck = False

    def start(self) -> None:
        """Begin to serve, in the running event loop."""
        self._thread.start()

    def stop(self) -> None:
        """End what still runs, and all threads; ``is_stuck`` tells whether one of them has not ended."""
        self.end_calls()
        for pool in (self._preparing, self._preparing_forms):
            pool.shutdown(wait=False, cancel_futures=True)
        unprepared = wait(set(self._preparations), _SECONDS_TO_STOP_PREPARING).not_done
        self.is_stuck = not self._thread.stop() or bool(unprepared)

    def refuse_calls(self) -> None:
        """Let nobody in any more: the server is ending."""
        self._is_ending = True

    def end_calls(self) -> None:
        """End all calls, with the reason that the server is ending."""
        self.refuse_calls()
        self._fail_all(unavailable("the server is shutting down; the answer was not finished"), "shutdown")

    @property
    def problem(self) -> str | None:
        """Why no call can be answered; None while they can."""
        return "the server is shutting down" if self._is_ending else self._thread.problem

    async def submit(
        self, prompts: Sequence[Prompt], params: SamplingParams, *, ends_at: float, stream: bool = False
    ) -> "Call":
        """Let a call in: its prompts are checked and in the engine's queue on return.

        Args:
            prompts: of the call.
            params: of all of them.
            ends_at: when its time is over, by the event loop's clock.
            stream: as in ``Engine.add_request``.

        Raises:
            ApiError: 400 where a prompt or a parameter is wrong, 429 where too many wait, 503 where the engine or the
                server has ended, 504 where its time is over.
        """
        if (problem := self.problem) is not None:
            raise unavailable(problem)
        self._check_room(len(prompts), params.num_sequences)
        call = Call(self, len(prompts), params, ends_at)
        self._num_sequences += call.num_sequences
        try:
            prepared = await self._prepare(call, prompts, params, stream)
            if (problem := self.problem) is not None:
                raise unavailable(problem)
            for index, tracked in enumerate(prepared):
                call.unfinished.add(tracked.request_id)
                self._calls[tracked.request_id] = call, index
                self._thread.post(partial(_add, tracked))
        except BaseException:
            call.close()
            raise
        return call

    def _check_room(self, num_prompts: int, sequences_of_each: int) -> None:
        num_sequences = num_prompts * sequences_of_each
        capacity = self.llm.engine.max_num_seqs + self.settings.max_queue
        most = min(self.settings.max_sequences, capacity)
        if num_sequences > most:
            raise invalid(
                f"the call asks for {num_sequences} sequences, prompts times n; at most {most} are allowed",
                "n" if sequences_of_each > 1 else "prompt",
            )
        if num_sequences > capacity - self._num_sequences:
            self.metrics.count_refused()
            raise ApiError(
                429,
                f"the queue is full: {self._num_sequences} sequences run or wait; try again in a second",
                type="rate_limit_error",
                code="rate_limit_exceeded",
                headers={"Retry-After": "1"},
            )

    async def _prepare(
        self, call: "Call", prompts: Sequence[Prompt], params: SamplingParams, stream: bool
    ) -> list[TrackedRequest]:
        pool = self._preparing if params.structured_outputs is None else self._preparing_forms
        request_ids = [next(self._request_ids) for _ in prompts]
        work = partial(_prepared, self.llm, request_ids, prompts, params, stream, time.perf_counter())
        return await self._result(pool, work, call.ends_at)

    async def beside[T](self, work: Callable[[], T], ends_at: float) -> T:
        """The result of work that is no call of the engine's, from the threads that prepare those.

        Raises:
            ApiError: 400 where it raises ValueError, 504 where it is not done at ``ends_at``.
        """
        return await self._result(self._preparing, work, ends_at)

    async def _result[T](self, pool: ThreadPoolExecutor, work: Callable[[], T], ends_at: float) -> T:
        preparation = pool.submit(work)
        self._preparations.add(preparation)
        preparation.add_done_callback(self._preparations.discard)
        try:
            async with asyncio.timeout_at(ends_at) as limit:
                return await asyncio.wrap_future(preparation)
        except TimeoutError as error:
            if not limit.expired():  # the work has raised it
                raise
            raise self.too_late from error
        except TooLongError as error:
            raise ApiError(400, str(error), code="context_length_exceeded") from error
        except ValueError as error:
            raise invalid(str(error)) from error

    @property
    def too_late(self) -> ApiError:
        """What a call ends with whose time is over."""
        message = f"the call took longer than {self.settings.request_timeout:g} seconds, and was ended"
        return ApiError(504, message, type="server_error", code="timeout")

    def _deliver(self, outputs: list[RequestOutput]) -> None:
        for output in outputs:
            if (known := self._calls.get(output.request_id)) is None:  # its client has left
                continue
            call, index = known
            if output.finished:
                self.metrics.observe(output)
                self._forget(call, output.request_id)
            call.mailbox.put(index, output)

    def _fail_all_of_engine(self, fault: BaseException) -> None:
        error = failed(f"the engine has failed ({type(fault).__name__}), and the answer was not finished")
        self._fail_all(error, "error")

    def _fail_all(self, error: ApiError, reason: EarlyEnd) -> None:
        for call in {id(call): call for call, _ in self._calls.values()}.values():
            call.mailbox.fail(error)
            self.end(call, reason)

    def _forget(self, call: "Call", request_id: str) -> None:
        del self._calls[request_id]
        call.unfinished.discard(request_id)
        if not call.unfinished:
            self._give_back(call)

    def _give_back(self, call: "Call") -> None:
        call.timer.cancel()
        self._num_sequences -= call.num_sequences
        call.num_sequences = 0

    def end(self, call: "Call", reason: EarlyEnd) -> None:
        """End what is unfinished of a call; its pages are free after the step under way."""
        for request_id in list(call.unfinished):
            self._thread.post(partial(_abort, request_id))
            self.metrics.count_early_end(reason, call.sequences_of_each)
            self._forget(call, request_id)
        self._give_back(call)


class Call:
    """One call under way: iterate over it, and close it whatever happens.

    Args:
        service: that it is a call of.
        num_prompts: requests that it is in the engine.
        params: of each.
        ends_at: when its time is over, by the event loop's clock. It ends then whether or not anyone waits for it.

    Attributes:
        num_sequences: that count for the queue; none once it has ended.
        sequences_of_each: that each request gives.
        unfinished: names of its requests in the engine that have not ended.
        mailbox: where their outputs come.
    """

    def __init__(self, service: InferenceService, num_prompts: int, params: SamplingParams, ends_at: float) -> None:
        self._service, self._num_prompts, self.ends_at = service, num_prompts, ends_at
        self.num_sequences, self.sequences_of_each = num_prompts * params.num_sequences, params.n
        self.unfinished = set[str]()
        self.mailbox = Mailbox()
        self.timer = asyncio.get_running_loop().call_at(ends_at, self._end_late)

    async def outputs(self) -> AsyncIterator[tuple[int, RequestOutput]]:
        """(index of the prompt, output) as they come, up to the end of all.

        Raises:
            ApiError: the engine failed, the server is ending, or the call's time is over.
        """
        num_open = self._num_prompts
        while num_open:
            for index, output in (await self.mailbox.fetch()).items():
                num_open -= output.finished
                yield index, output

    def _end_late(self) -> None:
        self.mailbox.fail(self._service.too_late)
        self._service.end(self, "timeout")

    def close(self) -> None:
        """End what is unfinished, since nobody waits for it any more; nothing where all is finished."""
        self._service.end(self, "abort")


def _prepared(
    llm: LLM,
    request_ids: Sequence[str],
    prompts: Sequence[Prompt],
    params: SamplingParams,
    stream: bool,
    arrival_time: float,
) -> list[TrackedRequest]:
    """Requests for the engine's queue; runs in any thread."""
    requests = []
    for request_id, prompt in zip(request_ids, prompts, strict=True):
        rendered = llm.renderer.render(prompt, is_held=params.structured_outputs is not None)
        tracked = llm.engine.prepare(request_id, params=params, stream=stream, **vars(rendered))
        tracked.arrival_time = arrival_time  # the wait for a thread that prepares it is a wait, too
        requests.append(tracked)
    return requests


def _add(tracked: TrackedRequest, engine: Engine) -> None:
    engine.add(tracked)


def _abort(request_id: str, engine: Engine) -> None:
    engine.abort(request_id)
