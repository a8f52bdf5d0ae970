"""One request over HTTP, its answer read as a stream and timed as it comes."""

import json
from collections.abc import Callable
from typing import Any

import httpx

from jaxinfer.bench.events import EventReader
from jaxinfer.bench.record import RequestRecord
from jaxinfer.bench.target import Target, error_of
from jaxinfer.value_checks import shown_error

BROKEN_OFF = "broken off"
ERROR_EVENT = "error event"
NO_STREAM = "no stream"
"""What goes wrong without a status or an exception to name it by."""

_DONE = b"[DONE]"


async def timed_call(
    client: httpx.AsyncClient, target: Target, request: httpx.Request, record: RequestRecord, clock: Callable[[], float]
) -> None:
    """Send the request and write into ``record`` what comes of it, errors too.

    Args:
        client: sends it, and has no limits of its own.
        target: knows the form of the answer.
        request: of ``target``.
        record: of this request, which is being sent now.
        clock: seconds since the beginning of the run.
    """
    reading = _Reading(target, record, clock)
    try:
        response = await client.send(request, stream=True)
        try:
            record.status = response.status_code
            if response.status_code != httpx.codes.OK:
                reading.fail(str(response.status_code), error_of(await response.aread()))
            elif not response.headers.get("content-type", "").startswith("text/event-stream"):
                reading.fail(NO_STREAM, error_of(await response.aread()))
            else:
                await _read_events(response, reading)
        finally:
            await response.aclose()
    except httpx.HTTPError as error:
        reading.fail(type(error).__name__, shown_error(error))


async def _read_events(response: httpx.Response, reading: "_Reading") -> None:
    events = EventReader()
    async for piece in response.aiter_raw():
        for data in events.feed(piece):
            reading.take(data)
    reading.close()


class _Reading:
    """An answer under way, and what its record is told of it."""

    def __init__(self, target: Target, record: RequestRecord, clock: Callable[[], float]) -> None:
        self._target, self._record, self._clock = target, record, clock
        self._finished = False
        self._latest = 0.0

    def take(self, data: bytes) -> None:
        """The data of one event, which has just come."""
        now = self._clock()
        if data == _DONE:
            self._finished = True
            return
        try:
            event = json.loads(data)
            if event.get("error"):
                self.fail(ERROR_EVENT, error_of(data))
                return
            self._count(event.get("usage"))
            for choice in event.get("choices") or []:
                self._take_choice(choice, now)
        except (ValueError, AttributeError, TypeError) as error:
            self.fail(ERROR_EVENT, f"an event cannot be read: {shown_error(error)}")

    def _take_choice(self, choice: dict[str, Any], now: float) -> None:
        if self._target.has_text(choice):
            self._record.text_times.append(now)
            self._latest = now
        if choice.get("finish_reason"):
            self._finished = True
            self._latest = now

    def _count(self, usage: dict[str, int] | None) -> None:
        if usage:
            self._record.prompt_tokens = usage.get("prompt_tokens")
            self._record.completion_tokens = usage.get("completion_tokens")

    def fail(self, error: str, message: str) -> None:
        """The answer is none; its first fault counts."""
        if self._record.error is None:
            self._record.fail(error, message, self._clock())

    def close(self) -> None:
        """The stream is at its end."""
        if not self._finished:
            self.fail(BROKEN_OFF, "the stream ended without a finish_reason")
        elif not self._latest:
            self.fail(BROKEN_OFF, "the answer has neither text nor a finish_reason")
        elif self._record.error is None:
            self._record.ended = self._latest
