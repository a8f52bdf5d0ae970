"""What the chunks of every stream have in common, and the last one, which counts the tokens."""

from collections.abc import Sequence
from typing import Any

from jaxinfer.openai_api.heads import AnswerHead, total_usage
from jaxinfer.outputs import RequestOutput


class ChunkStream:
    """Makes the chunks of one stream; what is new in each is its kind's to say.

    Args:
        kind: OpenAI's name for such a chunk, its ``object``.
        head: what all begin with.
        include_usage: whether a last chunk counts the tokens. Then the others say that they do not.
    """

    def __init__(self, kind: str, head: AnswerHead, *, include_usage: bool) -> None:
        self._head, self._include_usage = {"object": kind} | vars(head), include_usage

    def last(self, outputs: Sequence[RequestOutput]) -> list[dict[str, Any]]:
        """What comes after all choices."""
        if not self._include_usage:
            return []
        return [self._chunk([]) | {"usage": total_usage(outputs).model_dump()}]

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        chunk = self._head | {"choices": choices}
        return chunk | {"usage": None} if self._include_usage else chunk
