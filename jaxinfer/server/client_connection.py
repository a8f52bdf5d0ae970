"""One connection: a client that neither sends nor reads does not hold it for ever.

uvicorn waits without end for a request that does not come whole, and for a client that does not read its answer.
Connections are few (each takes a file of the process), and who holds all of them shuts everybody else out.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS_TO_ASK = 30.0
"""For the head of a request to come whole; what follows, a body, has the time of the call."""
SECONDS_TO_READ = 60.0
"""Without anything read by a client for whom more waits than fits between the two."""


class ClientConnection(H11Protocol):
    """uvicorn's own, with these two times."""

    _asking: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The client is there, and has said nothing."""
        super().connection_made(transport)
        self._asking = self.loop.call_later(SECONDS_TO_ASK, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Each request of the connection has its own time."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._asking = _cancelled(self._asking)
        elif self._asking is None and not self.transport.is_closing():
            self._asking = self.loop.call_later(SECONDS_TO_ASK, self.transport.abort)

    def on_response_complete(self) -> None:
        """uvicorn gives the next request a time to begin."""
        self._asking = _cancelled(self._asking)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """More waits than fits."""
        super().pause_writing()
        self._reading = self._reading or self.loop.call_later(SECONDS_TO_READ, self.transport.abort)

    def resume_writing(self) -> None:
        """It was read."""
        super().resume_writing()
        self._reading = _cancelled(self._reading)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left."""
        super().connection_lost(exc)
        self._asking, self._reading = _cancelled(self._asking), _cancelled(self._reading)


def _cancelled(timer: asyncio.TimerHandle | None) -> Any:
    if timer is not None:
        timer.cancel()
