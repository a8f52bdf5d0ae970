"""Answers of ``/v1/chat/completions``: whole, or as chunks of a stream."""

from collections import Counter
from typing import Any, Literal

from pydantic import BaseModel, Field

from jaxinfer.openai_api.chat_logprobs import ChatLogprobs, LogprobWriter
from jaxinfer.openai_api.chunk_stream import ChunkStream
from jaxinfer.openai_api.heads import AnswerHead, Usage, total_usage
from jaxinfer.openai_api.tool_choice import ToolChoice
from jaxinfer.outputs import CompletionOutput, RequestOutput, ToolCall

_NO_NEWS: dict[str, Any] = {"delta": {}, "logprobs": None, "finish_reason": None, "stop_reason": None}


class CalledFunction(BaseModel):
    """Attributes: the function's name, and its arguments as JSON text, as the model wrote them."""

    name: str
    arguments: str


class MessageToolCall(BaseModel):
    """A function that the caller is to run."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(BaseModel):
    """What the assistant says; ``content`` is None where it only calls."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[MessageToolCall] | None = Field(default=None, exclude_if=lambda calls: calls is None)


class ChatChoice(BaseModel):
    """One answer.

    Attributes:
        index: among the ``n``.
        message: what is said, and called.
        logprobs: of its tokens, where they were asked for.
        finish_reason: ``stop``, ``tool_calls``, ``length`` or ``content_filter``.
        stop_reason: the stop string or the stop token of the caller's that ended it.
    """

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None


class ChatCompletion(BaseModel):
    """The answer to a call: ``n`` choices."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage


def chat_completion(
    head: AnswerHead, output: RequestOutput, tool_choice: ToolChoice, logprobs: LogprobWriter
) -> ChatCompletion:
    """The whole answer."""
    choices = [_choice(tool_choice.applied(sequence), logprobs) for sequence in output.outputs]
    return ChatCompletion(**vars(head), choices=choices, usage=total_usage([output]))


def _choice(sequence: CompletionOutput, logprobs: LogprobWriter) -> ChatChoice:
    calls = [_tool_call(call) for call in sequence.tool_calls]
    message = ChatMessage(content=sequence.text or (None if calls else ""), tool_calls=calls or None)
    told = None if sequence.logprobs is None else logprobs.content(sequence.logprobs)
    return ChatChoice(
        index=sequence.index,
        message=message,
        logprobs=told,
        finish_reason=sequence.finish_reason,
        stop_reason=sequence.stop_reason,
    )


def _tool_call(call: ToolCall) -> MessageToolCall:
    return MessageToolCall(id=call.id, function=CalledFunction(name=call.name, arguments=call.arguments))


class ChatStream(ChunkStream):
    """Makes the chunks of one stream: of each choice first the role, then text as it comes, calls, and the reason.

    Args:
        head: what all chunks begin with.
        tool_choice: of the call.
        logprobs: of the call.
        include_usage: whether a last chunk counts the tokens.
    """

    def __init__(
        self, head: AnswerHead, tool_choice: ToolChoice, logprobs: LogprobWriter, *, include_usage: bool
    ) -> None:
        super().__init__("chat.completion.chunk", head, include_usage=include_usage)
        self._tool_choice, self._logprobs = tool_choice, logprobs
        self._begun, self._ended = set[int](), set[int]()
        self._num_told = Counter[int]()

    def chunks(self, prompt: int, output: RequestOutput) -> list[dict[str, Any]]:
        """What is new in the next output of the conversation."""
        return [
            self._chunk([{"index": sequence.index} | _NO_NEWS | news])
            for sequence in map(self._tool_choice.applied, output.outputs)
            if sequence.index not in self._ended
            for news in self._news(sequence)
        ]

    def _news(self, sequence: CompletionOutput) -> list[dict[str, Any]]:
        """What is new of a choice: for each chunk those fields of the choice that say something."""
        news: list[dict[str, Any]] = []
        if sequence.index not in self._begun:
            self._begun.add(sequence.index)
            news.append({"delta": {"role": "assistant", "content": ""}})
        # Text may be held back for a while, log-probabilities are not.
        logprobs = self._new_logprobs(sequence)
        if sequence.delta or logprobs is not None:
            news.append({"delta": {"content": sequence.delta} if sequence.delta else {}, "logprobs": logprobs})
        if sequence.finish_reason is not None:
            self._ended.add(sequence.index)
            calls = [{"index": i} | _tool_call(call).model_dump() for i, call in enumerate(sequence.tool_calls)]
            news += [{"delta": {"tool_calls": calls}}] if calls else []
            news.append({"finish_reason": sequence.finish_reason, "stop_reason": sequence.stop_reason})
        return news

    def _new_logprobs(self, sequence: CompletionOutput) -> dict[str, Any] | None:
        new = (sequence.logprobs or [])[self._num_told[sequence.index] :]
        self._num_told[sequence.index] += len(new)
        return self._logprobs.content(new).model_dump() if new else None
