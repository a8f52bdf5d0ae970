"""Answers of ``/v1/completions``: whole, or as chunks of a stream."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel

from jaxinfer.openai_api.heads import AnswerHead, Usage, total_usage
from jaxinfer.outputs import RequestOutput


class CompletionChoice(BaseModel):
    """One text."""

    index: int
    text: str
    finish_reason: str | None
    logprobs: None = None


class Completion(BaseModel):
    """The answer to a call: for each prompt ``n`` choices, one prompt's after the other's."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


def completion(head: AnswerHead, outputs: Sequence[RequestOutput]) -> Completion:
    """The whole answer; ``outputs`` in the order of the prompts."""
    choices = [
        CompletionChoice(index=first + sequence.index, text=sequence.text, finish_reason=sequence.finish_reason)
        for first, output in _numbered(outputs)
        for sequence in output.outputs
    ]
    return Completion(id=head.id, created=head.created, model=head.model, choices=choices, usage=total_usage(outputs))


def _numbered(outputs: Sequence[RequestOutput]) -> list[tuple[int, RequestOutput]]:
    return [(i * len(output.outputs), output) for i, output in enumerate(outputs)]


class CompletionStream:
    """Makes the chunks of one stream.

    Args:
        head: what all chunks begin with.
        n: sequences of each prompt.
        include_usage: whether a last chunk counts the tokens.
    """

    def __init__(self, head: AnswerHead, n: int, *, include_usage: bool) -> None:
        self._head, self._n, self._include_usage = head, n, include_usage
        self._ended = set[int]()

    def chunks(self, prompt: int, output: RequestOutput) -> list[dict[str, Any]]:
        """What is new in the next output of a prompt: a chunk for each sequence with news."""
        made = []
        for sequence in output.outputs:
            index = prompt * self._n + sequence.index
            if index in self._ended or not (sequence.delta or sequence.finish_reason):
                continue
            if sequence.finish_reason is not None:
                self._ended.add(index)
            choice = {
                "index": index,
                "text": sequence.delta,
                "finish_reason": sequence.finish_reason,
                "logprobs": None,
            }
            made.append(self._chunk([choice]))
        return made

    def last(self, outputs: Sequence[RequestOutput]) -> list[dict[str, Any]]:
        """What comes after all choices."""
        if not self._include_usage:
            return []
        return [self._chunk([]) | {"usage": total_usage(outputs).model_dump()}]

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        chunk = {"id": self._head.id, "object": "text_completion", "created": self._head.created}
        chunk |= {"model": self._head.model, "choices": choices}
        return chunk | {"usage": None} if self._include_usage else chunk
