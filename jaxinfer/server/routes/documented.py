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
    """The ``responses`` of a route that answers with text."""
    return {200: {"content": {media_type: {"schema": {"type": "string", "description": description}}}}}


_EVENT = {
    "type": "object",
    "properties": {"data": {"type": "string", "description": "A chunk as JSON, or an object `error`; then `[DONE]`."}},
    "required": ["data"],
}
# As OpenAPI 3.2 tells of a stream of events: each by itself.
ANSWERS_OF_CALLS = ERRORS_OF_CALLS | {200: {"content": {"text/event-stream": {"itemSchema": _EVENT}}}}
"""Of a route that asks the engine, beside its answer as a whole: events, where the body says ``stream``."""
