"""What the routes say of themselves in the OpenAPI document: which errors they answer with."""

from http import HTTPStatus
from typing import Any

from jaxinfer.openai_api.errors import ErrorBody


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route that may answer with these errors."""
    return {status: {"model": ErrorBody, "description": HTTPStatus(status).phrase} for status in statuses}


ERRORS_OF_CALLS = errors(400, 401, 404, 408, 413, 429, 500, 503, 504)
"""Of a route that asks the engine."""
