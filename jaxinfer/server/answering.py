"""From a call under way to an HTTP answer, whole or as a stream; the same for completions and chats."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from fastapi import Request, Response
from pydantic import BaseModel

from jaxinfer.openai_api.errors import ApiError, failed
from jaxinfer.outputs import RequestOutput
from jaxinfer.prompts import Prompt
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.server.connection import EventStream, while_connected
from jaxinfer.server.service import Call, InferenceService

logger = logging.getLogger(__name__)

_DONE = b"data: [DONE]\n\n"


class ChunkMaker(Protocol):
    """Makes the chunks of one stream from the outputs of its call."""

    def chunks(self, prompt: int, output: RequestOutput) -> list[dict[str, Any]]:
        """What is new in the next output of a prompt."""

    def last(self, outputs: Sequence[RequestOutput]) -> list[dict[str, Any]]:
        """What comes when all prompts are answered."""


async def answered(request: Request, prompts: Sequence[Prompt], params: SamplingParams) -> list[RequestOutput]:
    """The outputs of all prompts at their end, in their order.

    Raises:
        ApiError: the call was refused, or ended; 500 where one of its answers broke off.
        ClientDisconnect: the client has left.
    """
    return await while_connected(request, _answered(request.app.state.service, prompts, params))


async def _answered(
    service: InferenceService, prompts: Sequence[Prompt], params: SamplingParams
) -> list[RequestOutput]:
    call = await service.submit(prompts, params)
    try:
        outputs = {index: _checked(output) async for index, output in call.outputs()}
    finally:
        call.close()
    return [outputs[index] for index in range(len(prompts))]


async def as_json(make: Callable[[], BaseModel]) -> Response:
    """What ``make`` makes, as an answer; in a thread, since it may tell of all tokens of a long prompt."""
    return Response(await asyncio.to_thread(lambda: make().model_dump_json()), media_type="application/json")


def _checked(output: RequestOutput) -> RequestOutput:
    if output.error is not None:
        raise failed(output.error)
    return output


async def streamed(
    request: Request, prompts: Sequence[Prompt], params: SamplingParams, maker: ChunkMaker
) -> EventStream:
    """The call's stream; what is wrong with the call is raised before the first byte, as in ``answered``."""
    service: InferenceService = request.app.state.service
    call = await while_connected(request, service.submit(prompts, params, stream=True))
    return EventStream(_events(call, maker), call)


async def _events(call: Call, maker: ChunkMaker) -> AsyncIterator[bytes]:
    """A fault in the middle is told as an event, since the status is gone."""
    latest: dict[int, RequestOutput] = {}
    try:
        async for index, output in call.outputs():
            make = partial(_events_of, maker, index, _checked(output))
            # The first may tell of all tokens of a long prompt; the others are short, and a thread costs more.
            events = make() if index in latest else await asyncio.to_thread(make)
            latest[index] = output
            for event in events:
                yield event
        for chunk in maker.last([latest[index] for index in sorted(latest)]):
            yield _event(chunk)
    except ApiError as error:
        yield _event(error.body)
    except Exception as fault:
        logger.error("a stream broke off", exc_info=fault)
        yield _event(failed("the server failed in the middle of the answer; its log says why").body)
    yield _DONE


def _events_of(maker: ChunkMaker, index: int, output: RequestOutput) -> list[bytes]:
    return [_event(chunk) for chunk in maker.chunks(index, output)]


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
