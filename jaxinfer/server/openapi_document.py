"""The OpenAPI document at ``/openapi.json``: FastAPI's, with what it cannot know put right.

FastAPI documents an answer 422 in a form of its own wherever a body is checked, which is 400 in OpenAI's form here; and
that calls need a key it cannot see, since that is looked at before it reads them.
"""

from typing import Any

from fastapi import FastAPI

_FORM_OF_FASTAPI = ("HTTPValidationError", "ValidationError")


class DocumentedApp(FastAPI):
    """FastAPI's application with that document."""

    def openapi(self) -> dict[str, Any]:
        """The document, made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            _drop_422(document)
            if self.state.settings.api_key is not None:
                _require_key(document)
            self.openapi_schema = document
        return self.openapi_schema


def _operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in document["paths"].values() for operation in path.values()]


def _drop_422(document: dict[str, Any]) -> None:
    for operation in _operations(document):
        operation["responses"].pop("422", None)
    for name in _FORM_OF_FASTAPI:
        document["components"]["schemas"].pop(name, None)


def _require_key(document: dict[str, Any]) -> None:
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for operation in _operations(document):
        if "401" in operation["responses"]:
            operation["security"] = [{"key": []}]
