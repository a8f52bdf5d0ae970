"""Whatever goes wrong with a call is told in OpenAI's form, with a status that programs can go by."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from jaxinfer.openai_api.errors import ApiError, failed
from jaxinfer.openai_api.field_errors import invalid_field

logger = logging.getLogger(__name__)

_CLIENT_LEFT = 499
"""nginx' own status; nobody is there to read it."""


def install_error_handlers(app: FastAPI) -> None:
    """Have the application answer errors so."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _wrong_fields)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(ClientDisconnect, _client_left)
    app.add_exception_handler(Exception, _fault)


def _answer(error: ApiError) -> Response:
    return JSONResponse(error.body, error.status, headers=error.headers)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _answer(error)


async def _wrong_fields(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems: Sequence[Mapping[str, Any]] = error.errors()
    return _answer(invalid_field(problems))


async def _of_http(request: Request, error: Exception) -> Response:
    """What Starlette refuses itself: a path or a method that there is not."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return _answer(ApiError(error.status_code, message, headers=dict(error.headers or {})))


async def _client_left(request: Request, error: Exception) -> Response:
    return Response(status_code=_CLIENT_LEFT)


async def _fault(request: Request, error: Exception) -> Response:
    """A fault of ours: the log has it, and the client is told that it was none of its own."""
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _answer(failed("the server failed to answer; its log says why"))
