"""Where the engine puts what it has for one call, and the call fetches it."""

import asyncio
from dataclasses import replace

from jaxinfer.openai_api.errors import ApiError
from jaxinfer.outputs import CompletionOutput, RequestOutput


class Mailbox:
    """Outputs of one call's prompts, by their index. Everything here happens in the event loop's thread.

    A client that reads slowly fills no memory: of each prompt there is one output at most, the newest, whose deltas are
    those of all that were not fetched.
    """

    def __init__(self) -> None:
        self._outputs: dict[int, RequestOutput] = {}
        self._error: ApiError | None = None
        self._is_filled = asyncio.Event()

    def put(self, index: int, output: RequestOutput) -> None:
        """Put the next output of a prompt."""
        waiting = self._outputs.get(index)
        self._outputs[index] = output if waiting is None else _joined(waiting, output)
        self._is_filled.set()

    def fail(self, error: ApiError) -> None:
        """Nothing comes any more; the first reason counts."""
        self._error = self._error or error
        self._is_filled.set()

    async def fetch(self) -> dict[int, RequestOutput]:
        """All that is there, once something is.

        Raises:
            ApiError: the one given to ``fail``, after all outputs that came before it.
        """
        await self._is_filled.wait()
        if self._error is not None and not self._outputs:
            raise self._error
        outputs, self._outputs = self._outputs, {}
        if self._error is None:
            self._is_filled.clear()
        return outputs


def _joined(earlier: RequestOutput, later: RequestOutput) -> RequestOutput:
    pairs = zip(earlier.outputs, later.outputs, strict=True)
    return replace(later, outputs=[_joined_sequence(before, after) for before, after in pairs])


def _joined_sequence(before: CompletionOutput, after: CompletionOutput) -> CompletionOutput:
    return replace(after, delta=before.delta + after.delta) if before.delta else after
