"""The loop: schedule, run, commit. Requests go in, text comes out.

A step launches the next batch before it reads the one in flight, so the device has work while the host turns tokens
into text. Text belongs here, at the edge: each request owns a detokenizer, and everything below knows ids only.
"""

import logging
import random
import reprlib
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Integral

from jaxinfer.batch import Batch
from jaxinfer.config import EngineConfig
from jaxinfer.detokenizer import Detokenizer, IncrementalDetokenizer
from jaxinfer.interrupts import interrupts_held
from jaxinfer.outputs import CompletionOutput, RequestMetrics, RequestOutput, Usage
from jaxinfer.request import Request
from jaxinfer.runner import ModelRunner, StepOutput
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.scheduler import Scheduler
from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.tool_calls import ToolCallDetokenizer, ToolCallFormat

logger = logging.getLogger(__name__)

_SEED_BITS = 64


@dataclass
class _Tracked:
    """What the engine keeps of a request beside the scheduler's state."""

    request: Request
    prompt: str | None
    shown_prompt_ids: list[int]  # for outputs: a caller may do with them what it likes
    detokenizer: Detokenizer | None
    stream: bool
    arrival_time: float
    first_scheduled_time: float | None = None
    first_token_time: float | None = None
    num_read: int = 0


class Engine:
    """Serves requests with one model; not thread-safe: one caller adds, steps and aborts.

    Args:
        runner: the model on its device, warmed up or not.
        config: the limits that the runner was built with.
        tokenizer: None for a model without one: prompts are then given as ids and text stays empty.
        eos_token_ids: the tokens that end a request unless it says ``ignore_eos``.
        cache_identity: what the keys and values of all requests depend on besides their tokens: which model, say.
    """

    def __init__(
        self,
        runner: ModelRunner,
        config: EngineConfig,
        *,
        tokenizer: Tokenizer | None,
        eos_token_ids: Sequence[int],
        cache_identity: tuple[str, ...] = (),
    ) -> None:
        self.scheduler = Scheduler(config)
        self._runner, self._config, self._tokenizer = runner, config, tokenizer
        self._cache_identity = cache_identity
        # An end token that the model has no row for can never be drawn.
        self._eos_token_ids = frozenset(token_id for token_id in eos_token_ids if token_id < runner.vocab_size)
        self._seeds = random.Random(config.seed)
        self._tracked: dict[str, _Tracked] = {}
        self._in_flight: deque[StepOutput] = deque()
        self._changed: deque[Request] = deque()
        self._outputs: list[RequestOutput] = []

    @property
    def max_model_len(self) -> int:
        """The longest prompt and output together, in tokens."""
        return self._config.max_model_len

    @property
    def has_unfinished(self) -> bool:
        """Whether any request is waiting or running, or has ended without its output having been returned."""
        return self.scheduler.has_unfinished or bool(self._changed or self._outputs)

    def add_request(
        self,
        request_id: str,
        prompt: str | Sequence[int],
        params: SamplingParams,
        *,
        prompt_text: str | None = None,
        cache_salt: str | None = None,
        tool_format: ToolCallFormat | None = None,
        stream: bool = False,
    ) -> None:
        """Queue a request.

        Args:
            request_id: unique among the unfinished ones.
            prompt: text, or token ids.
            params: how to draw and when to stop.
            prompt_text: the text that a prompt given as ids was made from, for the output.
            cache_salt: requests share the pages of equal prefixes only with those that bring the same salt, or none as
                they do. A caller who serves several users keeps them from timing each other's prompts by it.
            tool_format: how the model writes calls of tools, where they are to be read; None: they are text.
            stream: give an output for every step that brings tokens, not only for the last.

        Raises:
            ValueError: the prompt is empty, too long for the model or the cache, or has an id outside the vocabulary; a
                stop token is outside it; the id is in use; a text without a tokenizer. Nothing was queued then.
        """
        arrival_time = time.perf_counter()
        if not isinstance(params, SamplingParams):
            raise ValueError(f"the sampling parameters are {params!r}; they must be a SamplingParams")
        if not isinstance(cache_salt, str | None):
            raise ValueError(f"cache_salt is {reprlib.repr(cache_salt)}; it must be text")
        token_ids = self._checked_ids("prompt", self._encode(prompt) if isinstance(prompt, str) else prompt)
        eos = frozenset() if params.ignore_eos else self._eos_token_ids
        stop_token_ids = eos | frozenset(self._checked_ids("stop_token_ids", params.stop_token_ids))
        if params.min_tokens > 0 and len(stop_token_ids) == self._runner.vocab_size:
            raise ValueError(f"min_tokens is {params.min_tokens}, and every token of the vocabulary is a stop token")
        room = max(self._config.max_model_len - len(token_ids), 0)
        request = Request(
            request_id=request_id,
            prompt_token_ids=token_ids,
            params=params,
            stop_token_ids=stop_token_ids,
            max_new_tokens=room if params.max_tokens is None else min(params.max_tokens, room),
            seed=self._seeds.getrandbits(_SEED_BITS) if params.seed is None else int(params.seed),
            cache_identity=self._cache_identity + (() if cache_salt is None else (f"salt={cache_salt}",)),
        )
        tracked = _Tracked(
            request=request,
            prompt=prompt if isinstance(prompt, str) else prompt_text,
            shown_prompt_ids=list(token_ids),
            detokenizer=self._detokenizer(token_ids, tool_format),
            stream=stream,
            arrival_time=arrival_time,
        )
        self.scheduler.add(request)  # last of what may fail: a refused request leaves nothing behind
        self._tracked[request_id] = tracked

    def abort(self, request_id: str) -> RequestOutput | None:
        """End a request now and return what it has; its pages are free at once. None if it is not unfinished."""
        request = self.scheduler.abort(request_id)
        return None if request is None else self._output(self._tracked[request_id])

    def step(self) -> list[RequestOutput]:
        """Launch the next step, then take in the one before.

        Ctrl-C loses nothing: the next call goes on from there. A step that cannot be launched or read ends its requests
        (finish reason ``abort``), since what it left in the cache is unknown; the error is passed on.

        Returns:
            An output for each request that ended, and for each streaming one that got tokens.

        Raises:
            RuntimeError: requests are unfinished and nothing can be done for any of them, which is a fault of the
                engine; better than to wait for ever.
        """
        with interrupts_held():
            batch = self.scheduler.schedule()
            if batch is not None:
                self._launch(batch)
        if batch is None and not self._in_flight and not self._changed and self.scheduler.has_unfinished:
            raise RuntimeError("the engine has unfinished requests, and none of them can be scheduled")
        num_ahead = 0 if batch is None else 1
        while len(self._in_flight) > num_ahead:
            self._commit()
        return self._report()

    def _launch(self, batch: Batch) -> None:
        try:
            self._note_first_scheduled(batch)
            self._in_flight.append(self._runner.launch(batch))
        except BaseException:
            self._give_up(batch)
            raise

    def _give_up(self, batch: Batch) -> None:
        """End the unfinished requests of a step that failed, or that followed one."""
        unfinished = [row.request for row in batch.rows if not row.request.is_finished]
        for request in unfinished:
            self.scheduler.abort(request.request_id)
        self.scheduler.forget_prefixes()  # it may not have written what it was to write
        self._changed.extend(unfinished)

    def _commit(self) -> None:
        """Take in the oldest step in flight."""
        step = self._in_flight[0]
        try:
            token_ids = (
                step.read()
            )  # the long wait, and so the likely place of a Ctrl-C, after which it can be read again
        except Exception:  # the device failed: it would fail again
            # The steps behind it may have read what this one was to write.
            while self._in_flight:
                self._give_up(self._in_flight.popleft().batch)
            raise
        with interrupts_held():
            self._in_flight.popleft()
            changed = self.scheduler.commit(step.batch, token_ids)
            now = time.perf_counter()
            for request in changed:
                tracked = self._tracked[request.request_id]
                if tracked.first_token_time is None and request.output_token_ids:
                    tracked.first_token_time = now
            self._changed.extend(changed)

    def _report(self) -> list[RequestOutput]:
        """Outputs for the requests that changed since the last report."""
        while self._changed:
            request = self._changed[0]
            tracked = self._tracked.get(request.request_id)
            # It may have been reported as ended by an abort, and its id taken by another request.
            if tracked is not None and tracked.request is request and (tracked.stream or request.is_finished):
                self._outputs.append(self._output(tracked))
            self._changed.popleft()
        outputs, self._outputs = self._outputs, []
        return outputs

    def _output(self, tracked: _Tracked) -> RequestOutput:
        """The request's state as its caller sees it; forgets a request that has ended."""
        request, error = tracked.request, None
        try:
            delta = self._new_text(tracked)
        except Exception as fault:  # text is the one thing here that a request's own content decides: end this one only
            logger.exception("request %s: its tokens cannot be turned into text", request.request_id)
            self.scheduler.abort(request.request_id)
            delta, error = "", f"its tokens cannot be turned into text: {fault}"
        if request.is_finished:
            del self._tracked[request.request_id]
        detokenizer = tracked.detokenizer
        tool_calls = tuple(detokenizer.tool_calls) if detokenizer is not None else ()
        finish_reason = "tool_calls" if tool_calls else request.finish_reason
        completion = CompletionOutput(
            index=0,
            text=detokenizer.text if detokenizer is not None else "",
            token_ids=list(request.output_token_ids),
            finish_reason=finish_reason if error is None else "error",
            delta=delta,
            tool_calls=tool_calls,
        )
        metrics = RequestMetrics(
            arrival_time=tracked.arrival_time,
            first_scheduled_time=tracked.first_scheduled_time,
            first_token_time=tracked.first_token_time,
            finished_time=time.perf_counter() if request.is_finished else None,
            num_generated_tokens=len(request.output_token_ids),
            num_preemptions=request.num_preemptions,
        )
        return RequestOutput(
            request_id=request.request_id,
            prompt=tracked.prompt,
            prompt_token_ids=tracked.shown_prompt_ids,
            outputs=[completion],
            finished=request.is_finished,
            metrics=metrics,
            usage=Usage(request.num_prompt_tokens, len(request.output_token_ids), request.num_cached_tokens),
            error=error,
        )

    def _new_text(self, tracked: _Tracked) -> str:
        """Text of the tokens that came since the last call; a token that stopped the request has none."""
        request, detokenizer = tracked.request, tracked.detokenizer
        if detokenizer is None:
            return ""
        end = len(request.output_token_ids) - (request.finish_reason == "stop")
        delta = detokenizer.push(request.output_token_ids[tracked.num_read : end])
        tracked.num_read = end
        if not request.is_finished:
            return delta
        return delta + detokenizer.finish(is_whole=request.finish_reason == "stop")

    def _note_first_scheduled(self, batch: Batch) -> None:
        now = time.perf_counter()
        for row in batch.rows[batch.num_decode_rows :]:
            tracked = self._tracked[row.request.request_id]
            if tracked.first_scheduled_time is None:
                tracked.first_scheduled_time = now

    def _detokenizer(self, prompt_token_ids: list[int], tool_format: ToolCallFormat | None) -> Detokenizer | None:
        if self._tokenizer is None:
            return None
        if tool_format is None:
            return IncrementalDetokenizer(self._tokenizer, prompt_token_ids)
        return ToolCallDetokenizer(self._tokenizer, prompt_token_ids, tool_format)

    def _encode(self, text: str) -> list[int]:
        if self._tokenizer is None:
            raise ValueError("the prompt is text and the model has no tokenizer; give token ids")
        if not text:
            raise ValueError("the prompt is empty; at least one token is needed")
        return self._tokenizer.encode(text)

    def _checked_ids(self, name: str, token_ids: Iterable[int]) -> list[int]:
        """The ids as a fresh list of plain ints, each inside the model's vocabulary."""
        vocab_size = self._runner.vocab_size
        # A set has no order, and text and bytes are sequences of something else.
        if isinstance(token_ids, str | bytes | Set | Mapping) or not isinstance(token_ids, Iterable):
            raise ValueError(f"{name} is {reprlib.repr(token_ids)}; it must be a list of token ids")
        try:
            checked = list(token_ids)
        except TypeError as error:  # an array without axes says that it can be iterated, and cannot
            raise ValueError(f"{name} is {reprlib.repr(token_ids)}; it must be a list of token ids") from error
        for token_id in checked:
            # Integral, since ids often come from NumPy; but True is no token.
            if isinstance(token_id, bool) or not isinstance(token_id, Integral) or not 0 <= token_id < vocab_size:
                raise ValueError(f"{name} has {token_id!r}; a token id is a whole number in [0, {vocab_size})")
        return list(map(int, checked))
