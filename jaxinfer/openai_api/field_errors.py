"""pydantic's errors as one sentence that names the field, what was given, and what is allowed."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxinfer.openai_api.errors import ApiError, invalid
from jaxinfer.value_checks import shown


def invalid_field(problems: Sequence[Mapping[str, Any]]) -> ApiError:
    """The first of the problems, as ``ValidationError.errors`` lists them, for the caller."""
    problem = problems[0]
    place = ".".join(str(part) for part in problem["loc"] if part != "body") or None
    if problem["type"] == "extra_forbidden":
        return invalid(f"there is no field {shown(place)}", place)
    if problem["type"] == "missing":
        return invalid(f"{place or 'the body'} is missing", place)
    text = problem["msg"].removeprefix("Value error, ")
    name = place or "the body"
    return invalid(f"{name} is {shown(problem['input'])}: {text[:1].lower()}{text[1:]}", place)
