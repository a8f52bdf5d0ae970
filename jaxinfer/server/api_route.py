"""How every call of the API is read: first the key, then a body that is neither too large nor too slow, then its JSON.

JSON is read by pydantic's parser: unlike Python's it refuses NaN, half a surrogate pair and nesting without end.
"""

import asyncio
import hmac
from collections.abc import Callable, Coroutine
from email.message import Message
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json

from jaxinfer.openai_api.errors import ApiError, invalid
from jaxinfer.server.settings import ServerSettings
from jaxinfer.value_checks import shown

_SCHEME = "bearer"


class ApiRoute(APIRoute):
    """A route whose body is read within the limits of ``app.state.settings``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As FastAPI's."""
        handle = super().get_route_handler()

        async def handle_checked(request: Request) -> Response:
            settings: ServerSettings = request.app.state.settings
            _check_key(request, settings.api_key)
            request.state.ends_at = asyncio.get_running_loop().time() + settings.request_timeout
            limited = _LimitedRequest(request.scope, request.receive)
            # Here, since FastAPI makes one error of its own of all that comes up when it reads them.
            try:
                if await limited.body():
                    await limited.json()
                return await handle(limited)
            finally:
                limited.leave_room()

        return handle_checked


class _LimitedRequest(Request):
    _num_held = 0

    def leave_room(self) -> None:
        """Give back the room that the body takes."""
        self.app.state.body_room.give_back(self._num_held)
        self._num_held = 0

    async def body(self) -> bytes:
        """The body. Raises ApiError where it is too large, or is not there in time."""
        if not hasattr(self, "_body"):
            settings: ServerSettings = self.app.state.settings
            try:
                async with asyncio.timeout_at(ends_at(self)):
                    self._body = await self._read(settings.max_body_bytes)
            except TimeoutError as late:
                message = f"the body was not there within {settings.request_timeout:g} seconds"
                raise ApiError(408, message, code="timeout") from late
        return self._body

    async def _read(self, most: int) -> bytes:
        announced = self.headers.get("content-length", "")
        if announced.isascii() and announced.isdecimal() and int(announced[:20]) > most:
            raise _too_large(most)
        body = bytearray()
        async for piece in self.stream():
            body += piece
            if len(body) > most:
                raise _too_large(most)
            self.app.state.body_room.take(len(piece))
            self._num_held += len(piece)
        return bytes(body)

    async def json(self) -> Any:
        """What the body says. Raises ApiError where it is no JSON, or is not said to be."""
        if not hasattr(self, "_json"):
            if not _is_json(self):  # a browser sends other kinds for any page, without asking whether that one may
                kind = self.headers.get("content-type")
                raise invalid(f"the header Content-Type is {shown(kind)}; it must be application/json")
            try:
                self._json = from_json(await self.body(), allow_inf_nan=False)
            except ValueError as error:
                raise invalid(f"the body is no JSON: {error}") from error
        return self._json


def ends_at(request: Request) -> float:
    """When the call's time is over, counted from its arrival, by the event loop's clock."""
    at: float = request.state.ends_at
    return at


def _is_json(request: Request) -> bool:
    """Whether the body is said to be JSON, by FastAPI's own rule."""
    message = Message()
    message["content-type"] = request.headers.get("content-type", "text/plain")
    subtype = message.get_content_subtype()
    return message.get_content_maintype() == "application" and (subtype == "json" or subtype.endswith("+json"))


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"the body has more than {most} bytes, which is the limit", code="body_too_large")


def _check_key(request: Request, api_key: str | None) -> None:
    if api_key is None:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    # In a time that does not depend on how much of it is right.
    is_right = hmac.compare_digest(given.strip().encode("latin-1"), api_key.encode())
    if scheme.lower() != _SCHEME or not is_right:
        raise ApiError(
            401,
            "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
