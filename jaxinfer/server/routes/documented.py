"""What the routes say of themselves in the OpenAPI document: what they answer besides one JSON object."""

from http import HTTPStatus
from typing import Any

from jaxinfer.openai_api.errors import ErrorBody


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route that may answer with these errors."""
    return {status: {"model": ErrorBody, "description": HTTPStatus(status).phrase} for status in statuses}


ERRORS_OF_READING = errors(400, 401, 408, 413, 429, 500)
"""Of every route that needs the key."""
ERRORS_OF_CALLS = errors(400, 401, 404, 408, 413, 429, 500, 503, 504)
"""Of a route that asks the engine."""


def text_answer(media_type: str, description: str) -> dict[int | str, dict[str, Any]]:
    """The ``responses`` of a route that answers with text, or may do so."""
    return {200: {"content": {media_type: {"schema": {"type": "string", "description": description}}}}}


ANSWERS_OF_CALLS = ERRORS_OF_CALLS | text_answer(
    "text/event-stream",
    'With `stream`: events `data: CHUNK`, each a JSON object, or one `data: {"error": ...}`; then `data: [DONE]`.',
)
"""Of a route that asks the engine, beside its answer as a whole."""
