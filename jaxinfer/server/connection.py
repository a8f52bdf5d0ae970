"""A client that leaves ends its call, whether or not it streams."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from jaxinfer.server.service import Call


async def while_connected[T](request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled where the client leaves.

    Raises:
        ClientDisconnect: it has left.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(StreamingResponse):
    """Server-sent events of one call, which is closed at the end, come it as it may.

    Args:
        events: each as bytes, blank line included.
        call: what they tell of.
    """

    def __init__(self, events: AsyncIterator[bytes], call: Call) -> None:
        # No proxy is to keep events back.
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them, until they end or the client leaves."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._call.close()
