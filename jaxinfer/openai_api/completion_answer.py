"""Answers of ``/v1/completions``: whole, or as chunks of a stream, the same choices piece by piece."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel

from jaxinfer.openai_api.chunk_stream import ChunkStream
from jaxinfer.openai_api.completion_body import CompletionBody
from jaxinfer.openai_api.completion_choices import CompletionChoice, PromptWriter
from jaxinfer.openai_api.heads import AnswerHead, Usage, total_usage
from jaxinfer.outputs import RequestOutput
from jaxinfer.tokenizers.protocol import Tokenizer


class Completion(BaseModel):
    """The answer to a call: for each prompt ``n`` choices, one prompt's after the other's."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage


def completion(
    head: AnswerHead, body: CompletionBody, tokenizer: Tokenizer | None, outputs: Sequence[RequestOutput]
) -> Completion:
    """The whole answer.

    Args:
        head: what it begins with.
        body: what was asked.
        tokenizer: the model's, or None.
        outputs: in the order of the prompts.
    """
    choices = [
        choice
        for index, output in enumerate(outputs)
        for choice in PromptWriter(index, body, tokenizer, output).news(output)
    ]
    return Completion(**vars(head), choices=choices, usage=total_usage(outputs))


class CompletionStream(ChunkStream):
    """Makes the chunks of one stream; its arguments are those of ``completion``."""

    def __init__(self, head: AnswerHead, body: CompletionBody, tokenizer: Tokenizer | None) -> None:
        super().__init__("text_completion", head, include_usage=body.include_usage)
        self._body, self._tokenizer = body, tokenizer
        self._writers: dict[int, PromptWriter] = {}

    def chunks(self, prompt: int, output: RequestOutput) -> list[dict[str, Any]]:
        """What is new in the next output of a prompt: a chunk for each sequence with news."""
        if prompt not in self._writers:
            self._writers[prompt] = PromptWriter(prompt, self._body, self._tokenizer, output)
        return [self._chunk([choice.model_dump()]) for choice in self._writers[prompt].news(output)]
