"""The loop: schedule, run, commit. Requests go in, text comes out.

A step launches the next batch before it reads the one in flight, so the device has work while the host turns tokens
into text. Text belongs here, at the edge: each request owns a detokenizer, and everything below knows ids only.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

from jaxinfer.config import EngineConfig
from jaxinfer.detokenizer import IncrementalDetokenizer
from jaxinfer.outputs import CompletionOutput, RequestMetrics, RequestOutput
from jaxinfer.request import Request
from jaxinfer.runner import ModelRunner, StepOutput
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.scheduler import Batch, Scheduler
from jaxinfer.tokenizers.protocol import Tokenizer

_SEED_BITS = 64


@dataclass
class _Tracked:
    """What the engine keeps of a request beside the scheduler's state."""

    request: Request
    prompt: str | None
    detokenizer: IncrementalDetokenizer | None
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
    """

    def __init__(
        self,
        runner: ModelRunner,
        config: EngineConfig,
        *,
        tokenizer: Tokenizer | None,
        eos_token_ids: Sequence[int],
    ) -> None:
        self.scheduler = Scheduler(config)
        self._runner, self._config, self._tokenizer = runner, config, tokenizer
        self._eos_token_ids = frozenset(eos_token_ids)
        self._seeds = random.Random(config.seed)
        self._tracked: dict[str, _Tracked] = {}
        self._in_flight: StepOutput | None = None

    @property
    def has_unfinished(self) -> bool:
        """Whether any request is waiting or running."""
        return self.scheduler.has_unfinished

    def add_request(
        self,
        request_id: str,
        prompt: str | Sequence[int],
        params: SamplingParams,
        *,
        prompt_text: str | None = None,
        stream: bool = False,
    ) -> None:
        """Queue a request.

        Args:
            request_id: unique among the unfinished ones.
            prompt: text, or token ids.
            params: how to draw and when to stop.
            prompt_text: the text that a prompt given as ids was made from, for the output.
            stream: give an output for every step that brings tokens, not only for the last.

        Raises:
            ValueError: the prompt is empty, too long for the model or the cache, or has an id outside the vocabulary; a
                stop token is outside it; the id is in use; a text without a tokenizer. Nothing was queued then.
        """
        if not isinstance(params, SamplingParams):
            raise ValueError(f"the sampling parameters are {params!r}; they must be a SamplingParams")
        token_ids = self._encode(prompt) if isinstance(prompt, str) else self._checked_ids("prompt", prompt)
        eos = frozenset() if params.ignore_eos else self._eos_token_ids
        room = max(self._config.max_model_len - len(token_ids), 0)
        request = Request(
            request_id=request_id,
            prompt_token_ids=token_ids,
            params=params,
            stop_token_ids=eos | frozenset(self._checked_ids("stop_token_ids", params.stop_token_ids)),
            max_new_tokens=room if params.max_tokens is None else min(params.max_tokens, room),
            seed=self._seeds.getrandbits(_SEED_BITS) if params.seed is None else params.seed,
        )
        detokenizer = IncrementalDetokenizer(self._tokenizer, token_ids) if self._tokenizer is not None else None
        text = prompt if isinstance(prompt, str) else prompt_text
        self.scheduler.add(request)  # last of what may fail: a refused request leaves nothing behind
        self._tracked[request_id] = _Tracked(request, text, detokenizer, stream, time.perf_counter())

    def abort(self, request_id: str) -> RequestOutput | None:
        """End a request now and return what it has; its pages are free at once. None if it is not unfinished."""
        if self.scheduler.abort(request_id) is None:
            return None
        return self._output(self._tracked[request_id])

    def step(self) -> list[RequestOutput]:
        """Launch the next step, then take in the one before.

        Returns:
            An output for each request that ended, and for each streaming one that got tokens.
        """
        batch = self.scheduler.schedule()
        launched = None
        if batch is not None:
            self._note_first_scheduled(batch)
            launched = self._runner.launch(batch)
        outputs = [] if self._in_flight is None else self._commit(self._in_flight)
        self._in_flight = launched
        return outputs

    def _commit(self, step: StepOutput) -> list[RequestOutput]:
        changed = self.scheduler.commit(step.batch, step.read())
        now, outputs = time.perf_counter(), []
        for request in changed:
            tracked = self._tracked[request.request_id]
            if tracked.first_token_time is None and request.output_token_ids:
                tracked.first_token_time = now
            if tracked.stream or request.is_finished:
                outputs.append(self._output(tracked))
        return outputs

    def _output(self, tracked: _Tracked) -> RequestOutput:
        """The request's state as its caller sees it; forgets a request that has ended."""
        request = tracked.request
        delta = self._new_text(tracked)
        if request.is_finished:
            del self._tracked[request.request_id]
        completion = CompletionOutput(
            index=0,
            text=tracked.detokenizer.text if tracked.detokenizer is not None else "",
            token_ids=list(request.output_token_ids),
            finish_reason=request.finish_reason,
            delta=delta,
        )
        metrics = RequestMetrics(
            arrival_time=tracked.arrival_time,
            first_scheduled_time=tracked.first_scheduled_time,
            first_token_time=tracked.first_token_time,
            finished_time=time.perf_counter() if request.is_finished else None,
            num_generated_tokens=len(request.output_token_ids),
        )
        return RequestOutput(
            request_id=request.request_id,
            prompt=tracked.prompt,
            prompt_token_ids=request.prompt_token_ids,
            outputs=[completion],
            finished=request.is_finished,
            metrics=metrics,
        )

    def _new_text(self, tracked: _Tracked) -> str:
        """Text of the tokens that came since the last call; a token that stopped the request has none."""
        request, detokenizer = tracked.request, tracked.detokenizer
        if detokenizer is None:
            return ""
        end = len(request.output_token_ids) - (request.finish_reason == "stop")
        delta = detokenizer.push(request.output_token_ids[tracked.num_read : end])
        tracked.num_read = end
        return delta + detokenizer.finish() if request.is_finished else delta

    def _note_first_scheduled(self, batch: Batch) -> None:
        now = time.perf_counter()
        for row in batch.rows[batch.num_decode_rows :]:
            if row.start == 0:
                self._tracked[row.request.request_id].first_scheduled_time = now

    def _encode(self, text: str) -> list[int]:
        if self._tokenizer is None:
            raise ValueError("the prompt is text and the model has no tokenizer; give token ids")
        if not text:
            raise ValueError("the prompt is empty; at least one token is needed")
        return self._tokenizer.encode(text)

    def _checked_ids(self, name: str, token_ids: Sequence[int]) -> list[int]:
        """The ids as a list of plain ints, each inside the vocabulary."""
        vocab_size = self._runner.vocab_size
        for token_id in token_ids:
            # Integral, since ids often come from NumPy; but True is no token.
            if isinstance(token_id, bool) or not isinstance(token_id, Integral) or not 0 <= token_id < vocab_size:
                raise ValueError(f"{name} has {token_id!r}; a token id is a whole number in [0, {vocab_size})")
        return [int(token_id) for token_id in token_ids]
