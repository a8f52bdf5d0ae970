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
from jaxinfer.server.api_route import ends_at
from jaxinfer.server.call_log import CallRecord, record_of
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
    return await while_connected(request, _answered(request, prompts, params))


async def _answered(request: Request, prompts: Sequence[Prompt], params: SamplingParams) -> list[RequestOutput]:
    service: InferenceService = request.app.state.service
    record, call = record_of(request), await service.submit(prompts, params, ends_at=ends_at(request))
    try:
        async for index, output in call.outputs():
            record.outputs[index] = output
            _check(output)
    finally:
        call.close()
    return [record.outputs[index] for index in range(len(prompts))]


async def as_json(make: Callable[[], BaseModel]) -> Response:
    """What ``make`` makes, as an answer; in a thread, since it may tell of all tokens of a long prompt."""
    return Response(await asyncio.to_thread(lambda: make().model_dump_json()), media_type="application/json")


def _check(output: RequestOutput) -> None:
    if output.error is not None:
        raise failed(output.error)


async def streamed(
    request: Request, prompts: Sequence[Prompt], params: SamplingParams, maker: ChunkMaker
) -> EventStream:
    """The call's stream; what is wrong with the call is raised before the first byte, as in ``answered``."""
    service: InferenceService = request.app.state.service
    call = await while_connected(request, service.submit(prompts, params, ends_at=ends_at(request), stream=True))
    return EventStream(_events(call, record_of(request), maker), call)


async def _events(call: Call, record: CallRecord, maker: ChunkMaker) -> AsyncIterator[bytes]:
    """A fault in the middle is told as an event, since the status is gone."""
    try:
        async for index, output in call.outputs():
            is_first = index not in record.outputs
            record.outputs[index] = output
            _check(output)
            make = partial(_events_of, maker, index, output)
            # The first may tell of all tokens of a long prompt; the others are short, and a thread costs more.
            events = await asyncio.to_thread(make) if is_first else make()
            for event in events:
                yield event
        for chunk in maker.last([record.outputs[index] for index in sorted(record.outputs)]):
            yield _event(chunk)
    except ApiError as error:
        record.error = error
        yield _event(error.body)
    except Exception as fault:
        logger.error("%s broke off", record.name, exc_info=fault)
        record.error = failed("the server failed in the middle of the answer; its log says why")
        yield _event(record.error.body)
    yield _DONE


def _events_of(maker: ChunkMaker, index: int, output: RequestOutput) -> list[bytes]:
    return [_event(chunk) for chunk in maker.chunks(index, output)]


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
