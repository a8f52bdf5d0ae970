"""What a caller gets back for a request, in the shape that users of vLLM know."""

from dataclasses import dataclass
from typing import Any, Literal

from jaxinfer.logprobs import Logprob

AnswerFinishReason = Literal["stop", "tool_calls", "length", "content_filter", "abort", "error"]


@dataclass(frozen=True)
class ToolCall:
    """A function that the model asks its caller to run: what OpenAI's API nests, flat.

    Attributes:
        id: by which the tool's result names the call, nine letters and digits: the model's own, where it wrote one that
            no call before it has, else random ones. No two calls of an answer share one.
        name: of the function; nobody has checked that there is such a tool.
        arguments: JSON text of an object; nobody has checked it against the tool's schema.
    """

    id: str
    name: str
    arguments: str

    def as_message_item(self) -> dict[str, Any]:
        """The call as OpenAI's API nests it, to go into ``tool_calls`` of the assistant's message in a conversation."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True)
class CompletionOutput:
    """One generated sequence. Of several in a stream, one of which nothing is new may be the object given before.

    Attributes:
        index: which of the request's sequences it is.
        text: all text so far, in each output of a stream a copy of its own. The token that stopped it, special tokens
            and calls of tools give none.
        token_ids: all ids so far, the one that stopped it included.
        finish_reason: ``stop`` (EOS, a stop token, a stop string, or the end of a form that nothing can follow),
            ``tool_calls`` (the same, and there are calls), ``length``, ``content_filter`` (an ``OutputFilter`` ended
            it), ``abort``, ``error``; None while it runs.
        delta: the text that is new since the output before; the deltas of a stream joined are ``text``.
        tool_calls: what the model asks to run, known at the end only. What is no whole call, and all
            calls of an answer that was cut off, is text.
        stop_reason: with the finish reason ``stop``, the stop string or the stop token of the caller's that ended it;
            None for the model's own end.
        logprobs: for each token of ``token_ids``, by token id, what the raw distribution says of it and of the most
            likely ones; None where they were not asked for.
        cumulative_logprob: the sum of the log-probabilities of ``token_ids``; None where they are not known.
    """

    index: int
    text: str
    token_ids: list[int]
    finish_reason: AnswerFinishReason | None
    delta: str
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: int | str | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    cumulative_logprob: float | None = None


@dataclass(frozen=True)
class RequestMetrics:
    """When things happened, in seconds of ``time.perf_counter``; None if they did not.

    Attributes:
        arrival_time: the engine took the request.
        first_scheduled_time: its first tokens were launched.
        first_token_time: the host read its first token.
        finished_time: it ended.
        num_generated_tokens: tokens read so far.
        num_preemptions: how often its pages were needed for others, and it was computed once more.
    """

    arrival_time: float
    first_scheduled_time: float | None
    first_token_time: float | None
    finished_time: float | None
    num_generated_tokens: int
    num_preemptions: int

    @property
    def ttft(self) -> float | None:
        """Time to first token in seconds, waiting included."""
        return None if self.first_token_time is None else self.first_token_time - self.arrival_time

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first; None before there are two and the end."""
        if self.first_token_time is None or self.finished_time is None or self.num_generated_tokens < 2:
            return None
        return (self.finished_time - self.first_token_time) / (self.num_generated_tokens - 1)


@dataclass(frozen=True)
class Usage:
    """Tokens of a request, as OpenAI's API counts them.

    Attributes:
        prompt_tokens: of the prompt.
        completion_tokens: drawn so far, a stop token included; of all sequences, those that ``best_of`` drops included.
        cached_tokens: those of the prompt that were not computed, since the cache had them from earlier requests.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True)
class RequestOutput:
    """A request's result, or its state in the middle of a stream.

    Attributes:
        request_id: its name.
        prompt: the prompt's text, or None if it was given as ids.
        prompt_token_ids: the prompt as the model saw it; empty for a request that was refused.
        outputs: the generated sequences, by their index.
        finished: whether it has ended, that is, all its sequences have.
        metrics: its times; None for a request that was refused.
        usage: its tokens; None for a request that was refused.
        prompt_logprobs: for each token of the prompt, by token id, what the raw distribution after the tokens before it
            says of it and of the most likely ones, and None for the first; None where they were not asked for. In the
            middle of a stream those that are known.
        error: why the request was refused, or why one of ``outputs`` broke off; None if neither is so.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    metrics: RequestMetrics | None
    usage: Usage | None
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    error: str | None = None
