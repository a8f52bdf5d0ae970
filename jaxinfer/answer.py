"""One sequence of a request on the engine's side: its text, its masks and its log-probabilities."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from jaxinfer.detokenizer import Detokenizer
from jaxinfer.logprobs import Logprob, RankedLogprobs
from jaxinfer.outputs import AnswerFinishReason, CompletionOutput
from jaxinfer.request import FinishReason, Request
from jaxinfer.token_masks import TokenMask


@dataclass(eq=False)
class Answer:
    """What the engine keeps of a sequence beside the scheduler's state.

    Attributes:
        request: the scheduler's state of it.
        detokenizer: makes its text; None for a model without a tokenizer.
        mask: what it may not draw.
        watches_text: whether its text may end it, so that each token's text must be looked at as it comes.
        spell: the ``decoded_token`` of an id.
        error: why it failed, or None.
        logprobs: of its tokens, where its caller asked for them.
        cumulative_logprob: their sum, where it is known.
    """

    request: Request
    detokenizer: Detokenizer | None
    mask: TokenMask
    watches_text: bool
    spell: Callable[[int], str | None]
    error: str | None = None
    logprobs: list[dict[int, Logprob]] = field(default_factory=list)
    cumulative_logprob: float = 0.0
    _num_read: int = 0
    _is_closed: bool = False
    _unreported: list[str] = field(default_factory=list)
    _last: CompletionOutput | None = None
    _last_num_tokens: int = 0

    @property
    def finish_reason(self) -> AnswerFinishReason | None:
        """Why it ended, its text's reason before its tokens'; None while it has not."""
        if self.error is not None:
            return "error"
        if self.detokenizer is not None:
            if self.detokenizer.tool_calls:
                return "tool_calls"
            if self.detokenizer.ended is not None:
                return self.detokenizer.ended.reason
        return self._reason_of_tokens

    @property
    def _reason_of_tokens(self) -> FinishReason | None:
        """Why no more of them come: ``stop`` as well where the last one that it may have completes its form."""
        reason = self.request.finish_reason
        return "stop" if reason == "length" and self.mask.is_done else reason

    @property
    def is_attended(self) -> bool:
        """Whether its tokens, as they come and before they are drawn, need more than to be noted; it never changes."""
        params = self.request.params
        tells_more = params.wants_logprobs or params.prompt_logprobs is not None
        return tells_more or self.watches_text or not self.mask.is_empty

    @property
    def is_complete(self) -> bool:
        """Whether it must end here although its tokens go on: its text ends it, or nothing can follow its form."""
        return self.mask.is_done or (self.detokenizer is not None and self.detokenizer.ended is not None)

    @property
    def mean_logprob(self) -> float:
        """Log-probability per token, by which the best of several is found; the worst for no token, or a fault."""
        num_tokens = len(self.request.output_token_ids)
        return self.cumulative_logprob / num_tokens if num_tokens and self.error is None else -math.inf

    def fail(self, error: str) -> None:
        """Note why it ends now; its text stays as it is."""
        self.error, self._is_closed = error, True

    def take_token(self, drawn: RankedLogprobs | None, i: int) -> None:
        """Take in what the request has got, for a sequence that ``is_attended``: a token, an end, or both.

        Args:
            drawn: log-probabilities of a step's tokens, for a request that wants them.
            i: which of them is the new one.

        Raises:
            ValueError: its form or its text cannot go on from here; text may raise other errors as well.
        """
        request = self.request
        if request.output_token_ids and request.params.wants_logprobs:
            assert drawn is not None, "the step tells what a row of it wants"
            self._take_logprobs(drawn, i)
        if request.output_token_ids and not self._ended_by_token:
            self.mask.accept(request.output_token_ids[-1])
        if self.watches_text:
            self.read_text()

    def _take_logprobs(self, ranked: RankedLogprobs, i: int) -> None:
        self.cumulative_logprob += float(ranked.logprob[i])
        num_top = self.request.params.logprobs
        if num_top is not None:
            self.logprobs.append(ranked.of(i, self.request.output_token_ids[-1], num_top, self.spell))

    def read_text(self) -> None:
        """Turn the tokens that came since the last call into text. A token that stopped the sequence has none."""
        request, detokenizer = self.request, self.detokenizer
        if detokenizer is None or self._is_closed:
            return
        end = len(request.output_token_ids) - self._ended_by_token
        if end > self._num_read:
            self._unreported.append(detokenizer.push(request.output_token_ids[self._num_read : end]))
            self._num_read = end
        if request.is_finished or detokenizer.ended is not None:
            self._is_closed = True
            self._unreported.append(detokenizer.finish(is_whole=self._reason_of_tokens == "stop"))

    def completion(self, index: int) -> CompletionOutput:
        """Its state as a caller sees it; the text since the last call is the delta.

        While nothing is new it is the same object: in a stream of many sequences most wait, or have ended.
        """
        reason, last, num_tokens = self.finish_reason, self._last, len(self.request.output_token_ids)
        is_new = bool(self._unreported) or num_tokens != self._last_num_tokens
        if last is None or is_new or reason != last.finish_reason:
            last = self._new_completion(index, reason)
        elif last.delta:
            last = replace(last, delta="")
        self._last, self._last_num_tokens = last, num_tokens
        return last

    def _new_completion(self, index: int, reason: AnswerFinishReason | None) -> CompletionOutput:
        params, detokenizer = self.request.params, self.detokenizer
        delta = "".join(self._unreported)
        self._unreported.clear()
        return CompletionOutput(
            index=index,
            text=detokenizer.text if detokenizer is not None else "",
            token_ids=list(self.request.output_token_ids),
            finish_reason=reason,
            stop_reason=self._stop_reason if reason == "stop" else None,
            delta=delta,
            tool_calls=tuple(detokenizer.tool_calls) if detokenizer is not None else (),
            logprobs=None if params.logprobs is None else list(self.logprobs),
            cumulative_logprob=self.cumulative_logprob if params.wants_logprobs else None,
        )

    @property
    def _ended_by_token(self) -> bool:
        token_ids = self.request.output_token_ids
        return bool(token_ids) and token_ids[-1] in self.request.stop_token_ids

    @property
    def _stop_reason(self) -> int | str | None:
        """The stop string or the stop token that ended it, where its finish reason is ``stop``."""
        if self.detokenizer is not None and self.detokenizer.ended is not None:
            return self.detokenizer.ended.stop_string
        token_ids, asked = self.request.output_token_ids, self.request.params.stop_token_ids
        return token_ids[-1] if self._ended_by_token and asked and token_ids[-1] in asked else None
