"""One request on the engine's side: the sequences that answer it, when things happened, and what its caller sees."""

import time
from dataclasses import dataclass, field

from jaxinfer.answer import Answer
from jaxinfer.logprobs import Logprob, RankedLogprobs
from jaxinfer.outputs import RequestMetrics, RequestOutput, Usage


@dataclass(eq=False)  # each is one of a kind, and a key of what is to be reported
class TrackedRequest:
    """A request and the sequences that are drawn for it.

    Attributes:
        request_id: its caller's name for it.
        prompt: its text, where that is known.
        shown_prompt_ids: for outputs: a caller may do with them what it likes.
        answers: its sequences; each draws on its own, and they share the prompt's pages through the prefix cache.
        stream: give an output for every step that brings tokens, not only for the last.
        arrival_time: seconds of ``time.perf_counter``, as all times here.
        prompt_logprobs: of the prompt's tokens as far as they were computed, the first of which has none.
    """

    request_id: str
    prompt: str | None
    shown_prompt_ids: list[int]
    answers: list[Answer]
    stream: bool
    arrival_time: float
    first_scheduled_time: float | None = None
    first_token_time: float | None = None
    prompt_logprobs: list[dict[int, Logprob] | None] = field(default_factory=lambda: [None])

    @property
    def is_finished(self) -> bool:
        """Whether all its sequences have ended."""
        return None not in [answer.request.finish_reason for answer in self.answers]

    def take_prompt_logprobs(self, ranked: RankedLogprobs, start: int) -> None:
        """Note those of the prompt's tokens from ``start`` on; those that are known, since it was preempted, stay."""
        first = self.answers[0]
        num_top, token_ids = first.request.params.prompt_logprobs, first.request.prompt_token_ids
        assert num_top is not None, "only a request that asked for them is given any"
        for position in range(len(self.prompt_logprobs), min(start + len(ranked.logprob), len(token_ids))):
            self.prompt_logprobs.append(ranked.of(position - start, token_ids[position], num_top, first.spell))

    def output(self) -> RequestOutput:
        """Its state as its caller sees it; text that was in an output before is not in its deltas."""
        requests = [answer.request for answer in self.answers]
        first, is_finished, chosen = requests[0], self.is_finished, self._chosen()
        num_tokens = sum([len(request.output_token_ids) for request in requests])
        metrics = RequestMetrics(
            arrival_time=self.arrival_time,
            first_scheduled_time=self.first_scheduled_time,
            first_token_time=self.first_token_time,
            finished_time=time.perf_counter() if is_finished else None,
            num_generated_tokens=num_tokens,
            num_preemptions=sum([request.num_preemptions for request in requests]),
        )
        return RequestOutput(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=self.shown_prompt_ids,
            outputs=[answer.completion(index) for index, answer in enumerate(chosen)],
            finished=is_finished,
            metrics=metrics,
            usage=Usage(first.num_prompt_tokens, num_tokens, first.num_cached_tokens),
            prompt_logprobs=None if first.params.prompt_logprobs is None else list(self.prompt_logprobs),
            error=next((answer.error for answer in chosen if answer.error is not None), None),
        )

    def _chosen(self) -> list[Answer]:
        """The sequences to give: all, or the best ``n`` of them, the first of equals first."""
        n = self.answers[0].request.params.n
        if n == len(self.answers):
            return self.answers
        return sorted(self.answers, key=lambda answer: -answer.mean_logprob)[:n]
