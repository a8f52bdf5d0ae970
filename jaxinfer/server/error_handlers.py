"""Whatever goes wrong with a call is told in OpenAI's form, with a status that programs can go by."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from jaxinfer.openai_api.errors import ApiError
from jaxinfer.openai_api.field_errors import invalid_field
from jaxinfer.server.call_log import CLIENT_LEFT, record_of
from jaxinfer.value_checks import shown


def install_error_handlers(app: FastAPI) -> None:
    """Have the application answer errors so; what is none of these is answered by ``CallLog``."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _wrong_fields)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(ClientDisconnect, _client_left)


def _answer(request: Request, error: ApiError) -> Response:
    record_of(request).error = error
    return JSONResponse(error.body, error.status, headers=error.headers)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _answer(request, error)


async def _wrong_fields(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems: Sequence[Mapping[str, Any]] = error.errors()
    return _answer(request, invalid_field(problems))


async def _of_http(request: Request, error: Exception) -> Response:
    """What Starlette refuses itself: a path or a method that there is not."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {shown(request.scope['path'])}: {error.detail}"
    return _answer(request, ApiError(error.status_code, message, headers=dict(error.headers or {})))


async def _client_left(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_LEFT)
