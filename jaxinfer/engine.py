"""The loop: schedule, run, commit. Requests go in, text comes out.

A step launches the next batch before it reads the one in flight, so the device has work while the host turns tokens
into text. Where a row's next mask depends on the token in flight (a grammar), only the forward pass is launched ahead:
the token is read, the mask made while the device computes, and then the draw launched. Text belongs here, at the edge:
each sequence owns a detokenizer, and everything below knows ids only.
"""

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from jaxinfer.answer import Answer
from jaxinfer.batch import Batch, ScheduledRow
from jaxinfer.config import EngineConfig
from jaxinfer.intake import Intake
from jaxinfer.interrupts import interrupts_held
from jaxinfer.output_filter import OutputFilterFactory
from jaxinfer.outputs import RequestOutput
from jaxinfer.request import FinishReason, Request
from jaxinfer.runner import ForwardStep, ModelRunner, StepOutput
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.scheduler import Scheduler
from jaxinfer.token_masks import TokenBits
from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.tool_calls import ToolCallFormat
from jaxinfer.tracked import TrackedRequest
from jaxinfer.value_checks import shown, shown_error

logger = logging.getLogger(__name__)


class Engine:
    """Serves requests with one model; not thread-safe: one caller adds, steps and aborts.

    Args:
        runner: the model on its device, warmed up or not.
        config: the limits that the runner was built with.
        tokenizer: None for a model without one: prompts are then given as ids and text stays empty.
        eos_token_ids: the tokens that end a request unless it says ``ignore_eos``.
        cache_identity: what the keys and values of all requests depend on besides their tokens: which model, say.
        output_filter: makes an ``OutputFilter`` for each sequence, which sees its text before anyone else; or None.
    """

    def __init__(
        self,
        runner: ModelRunner,
        config: EngineConfig,
        *,
        tokenizer: Tokenizer | None,
        eos_token_ids: Sequence[int],
        cache_identity: tuple[str, ...] = (),
        output_filter: OutputFilterFactory | None = None,
    ) -> None:
        self.scheduler = Scheduler(config)
        self._runner, self._config = runner, config
        self._intake = Intake(
            config,
            runner.vocab_size,
            tokenizer=tokenizer,
            eos_token_ids=eos_token_ids,
            cache_identity=cache_identity,
            output_filter=output_filter,
            check_fits=self.scheduler.check_fits,
        )
        self._tracked: dict[str, TrackedRequest] = {}
        self._owners: dict[Request, tuple[TrackedRequest, Answer]] = {}
        # Those of whose steps more is to be done than to note a token; most requests are not in it, and cost nothing.
        self._attended: dict[Request, Answer] = {}
        self._in_flight: deque[StepOutput] = deque()
        self._to_sample: ForwardStep | None = None
        self._changed: dict[TrackedRequest, None] = {}
        self._outputs: list[RequestOutput] = []

    @property
    def max_model_len(self) -> int:
        """The longest prompt and output together, in tokens."""
        return self._config.max_model_len

    @property
    def max_num_seqs(self) -> int:
        """Sequences that run at the same time."""
        return self._config.max_num_seqs

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
                token that the parameters name is outside it, or they leave none to draw; the form of structured outputs
                cannot be held; the id is in use; a text without a tokenizer; no output filter can be made. Nothing was
                queued then, and nothing else of the engine has changed.
        """
        self._check_unused(request_id)  # first: a refused request changes no other's seed
        self.add(
            self.prepare(
                request_id,
                prompt,
                params,
                prompt_text=prompt_text,
                cache_salt=cache_salt,
                tool_format=tool_format,
                stream=stream,
            )
        )

    def prepare(
        self,
        request_id: str,
        prompt: str | Sequence[int],
        params: SamplingParams,
        *,
        prompt_text: str | None = None,
        cache_salt: str | None = None,
        tool_format: ToolCallFormat | None = None,
        stream: bool = False,
    ) -> TrackedRequest:
        """All of ``add_request`` but its last moment: the request is checked and made, and not queued.

        For who steps the engine in a thread of its own: to tokenize a prompt and to read a form takes time, and this
        may run beside the steps, in several threads at once. Requests with a form (``structured_outputs``) it makes
        one at a time only.

        Raises:
            ValueError: as ``add_request``, but for an id in use.
        """
        return self._intake.take(
            request_id,
            prompt,
            params,
            prompt_text=prompt_text,
            cache_salt=cache_salt,
            tool_format=tool_format,
            stream=stream,
        )

    def add(self, tracked: TrackedRequest) -> None:
        """Queue what ``prepare`` made. Raises ValueError where its id is in use by an unfinished request."""
        self._check_unused(tracked.request_id)
        with interrupts_held():
            for answer in tracked.answers:
                self.scheduler.add(answer.request)
            self._tracked[tracked.request_id] = tracked
            self._owners |= {answer.request: (tracked, answer) for answer in tracked.answers}
            self._attended |= {answer.request: answer for answer in tracked.answers if answer.is_attended}

    def _check_unused(self, request_id: str) -> None:
        if request_id in self._tracked:
            raise ValueError(f"request id {shown(request_id)} is in use by an unfinished request")

    def abort(self, request_id: str) -> RequestOutput | None:
        """End a request now and return what it has; its pages are free at once. None if it is not unfinished."""
        tracked = self._tracked.get(request_id)
        if tracked is None or tracked.is_finished:
            return None
        with interrupts_held():
            for answer in tracked.answers:
                self.scheduler.end(answer.request)
            return self._output(tracked)

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
            batch = None if self._to_sample is not None else self.scheduler.schedule()
            if batch is not None:
                self._launch(batch)
        is_idle = batch is None and not self._in_flight and self._to_sample is None
        if is_idle and not self._changed and self.scheduler.has_unfinished:
            raise RuntimeError("the engine has unfinished requests, and none of them can be scheduled")
        num_ahead = 0 if batch is None or self._to_sample is not None else 1
        while len(self._in_flight) > num_ahead:
            self._commit()
        with interrupts_held():
            if self._to_sample is not None:
                self._sample()
            self._report()
        outputs, self._outputs = self._outputs, []
        return outputs

    def _launch(self, batch: Batch) -> None:
        """Start a step, but for the draw if a mask of it depends on a token that is in flight."""
        with self._given_up_on_failure(batch):
            self._note_first_scheduled(batch)
            self._to_sample = self._runner.forward(batch)
        if not any(batch.rows[i].token_ids is None and answer.mask.is_late for i, answer in self._attended_rows(batch)):
            self._sample()

    def _sample(self) -> None:
        """Launch the draw of the step whose forward pass was launched last."""
        step, self._to_sample = self._to_sample, None
        assert step is not None, "there is a step to draw for"
        with self._given_up_on_failure(step.batch):
            forbidden: list[TokenBits | None] = []
            if attended := self._attended_rows(step.batch):
                forbidden = [None] * len(step.batch.rows)
                for i, answer in attended:
                    forbidden[i] = self._forbidden(step.batch.rows[i], answer)
            self._in_flight.append(self._runner.sample(step, forbidden))

    def _forbidden(self, row: ScheduledRow, answer: Answer) -> TokenBits | None:
        """What the row may not draw; what it draws counts for nothing if it has ended, or does so here."""
        request = row.request
        if not row.samples or request.is_finished:
            return None
        try:
            return answer.mask.forbidden(row.sample_index, request.output_token_ids)
        except Exception as fault:
            self._fail(answer, fault)
            return None

    def _attended_rows(self, batch: Batch) -> list[tuple[int, Answer]]:
        """The rows of attended sequences that are not yet reported as ended."""
        if not self._attended:
            return []
        rows = ((i, self._attended.get(row.request)) for i, row in enumerate(batch.rows))
        return [(i, answer) for i, answer in rows if answer is not None]

    @contextmanager
    def _given_up_on_failure(self, batch: Batch) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._give_up(batch)
            raise

    def _give_up(self, batch: Batch) -> None:
        """End the unfinished requests of a step that failed, or that followed one."""
        for row in batch.rows:
            if not row.request.is_finished:
                self._end(row.request)
        self.scheduler.forget_prefixes()  # it may not have written what it was to write

    def _fail(self, answer: Answer, fault: Exception) -> None:
        """End one sequence only: what its tokens mean, and what may follow them, is its own matter."""
        logger.error("request %s", shown(answer.request.request_id), exc_info=fault)
        answer.fail(f"its answer cannot go on: {shown_error(fault)}")
        self._end(answer.request)

    def _end(self, request: Request, reason: FinishReason = "abort") -> None:
        self.scheduler.end(request, reason)
        self._changed[self._owners[request][0]] = None

    def _commit(self) -> None:
        """Take in the oldest step in flight."""
        step = self._in_flight[0]
        rows, attended = step.batch.rows, self._attended_rows(step.batch)
        try:
            # The long wait, and so the likely place of a Ctrl-C, after which it can be read again.
            token_ids = step.read()
            wants_logprobs = any(rows[i].samples and answer.request.params.wants_logprobs for i, answer in attended)
            drawn = step.logprobs() if wants_logprobs else None
            scores = {i: step.prompt_logprobs(i) for i, answer in attended if rows[i].scores_prompt}
        except Exception:  # the device failed: it would fail again
            # The steps behind it may have read what this one was to write.
            while self._in_flight:
                self._give_up(self._in_flight.popleft().batch)
            if self._to_sample is not None:
                self._give_up(self._to_sample.batch)
            self._to_sample = None
            raise
        with interrupts_held():
            self._in_flight.popleft()
            changed = self.scheduler.commit(step.batch, token_ids)
            self._note(changed)
            with_token = set(changed) if attended else ()
            for i, answer in attended:
                try:
                    if i in scores:
                        self._owners[answer.request][0].take_prompt_logprobs(scores[i], rows[i].start + 1)
                    if answer.request in with_token:
                        answer.take_token(drawn, i)
                except Exception as fault:
                    self._fail(answer, fault)
                if not answer.request.is_finished and answer.is_complete:
                    self._end(answer.request, "stop")

    def _note(self, changed: Iterable[Request]) -> None:
        """Note when first tokens came, and of whom an output is due."""
        now = time.perf_counter()
        for request in changed:
            tracked, _ = self._owners[request]
            if tracked.first_token_time is None and request.output_token_ids:
                tracked.first_token_time = now
            if tracked.stream or request.is_finished:
                self._changed[tracked] = None

    def _report(self) -> None:
        """Make outputs of the requests that changed since the last report."""
        while self._changed:
            tracked = next(iter(self._changed))
            # It may have been reported as ended by an abort, and its id taken by another request.
            is_known = self._tracked.get(tracked.request_id) is tracked
            if is_known and (tracked.stream or tracked.is_finished):
                self._outputs.append(self._output(tracked))
            del self._changed[tracked]

    def _output(self, tracked: TrackedRequest) -> RequestOutput:
        """The request's state as its caller sees it; forgets a request that has ended."""
        for answer in tracked.answers:
            try:
                answer.read_text()
            except Exception as fault:
                self._fail(answer, fault)
        if tracked.is_finished:
            del self._tracked[tracked.request_id]
            for answer in tracked.answers:
                del self._owners[answer.request]
                self._attended.pop(answer.request, None)
        return tracked.output()

    def _note_first_scheduled(self, batch: Batch) -> None:
        now = time.perf_counter()
        for row in batch.rows[batch.num_decode_rows :]:
            tracked = self._owners[row.request][0]
            if tracked.first_scheduled_time is None:
                tracked.first_scheduled_time = now
