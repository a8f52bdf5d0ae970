"""pydantic's errors as one sentence that names the field, what was given, and what is allowed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, WrapValidator, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from jaxinfer.openai_api.errors import ApiError, invalid
from jaxinfer.value_checks import shown

T = TypeVar("T")

_MOST_ERRORS = 100
_LONGEST_NAME = 100
_KINDS_OF_NO_OBJECT = ("dict_type", "model_type", "model_attributes_type")
_START = "Input should be "


class _FirstErrorOnly:
    """pydantic's own mark for it cannot stand in a union."""

    def __get_pydantic_core_schema__(self, kind: Any, make: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = make(kind)
        schema["fail_fast"] = True
        return schema


ListOf = Annotated[list[T], _FirstErrorOnly()]
"""A list of which only the first wrong item is told: a body has room for a million, which took seconds."""


class CheckedBody(BaseModel):
    """The body of a call: each field of its own type, and no other fields."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def _limit_errors(cls, given: Any, check: Callable[[Any], Self]) -> Self:
        """pydantic finds one error in each item of a list; to write down a million takes seconds."""
        try:
            return check(given)
        except ValidationError as error:
            if (count := error.error_count()) <= _MOST_ERRORS:
                raise
            raise PydanticCustomError("many_errors", "{count} of its items are wrong", {"count": count}) from None


def allowed(words: str) -> WrapValidator:
    """Has the error of a union say what is allowed, where pydantic tells of one for each type in it."""

    def check(value: Any, check_type: Callable[[Any], Any]) -> Any:
        try:
            return check_type(value)
        except ValidationError as error:
            raise PydanticCustomError("not_allowed", "it must be {words}", {"words": words}) from error

    return WrapValidator(check)


def invalid_field(problems: Sequence[Mapping[str, Any]]) -> ApiError:
    """The first of the problems, as ``ValidationError.errors`` lists them, for the caller."""
    problem = problems[0]
    kind, given = problem["type"], problem["input"]
    path = [str(part) for part in problem["loc"] if part != "body"]
    if not path:
        return _invalid_body(kind, given, problem["msg"])
    place, field = ".".join(path), path[0]
    if kind == "extra_forbidden":
        return invalid(f"there is no field {shown(place)}", field[:_LONGEST_NAME])
    if kind == "missing":
        return invalid(f"{place} is missing", field)
    return invalid(f"{place} is {shown(given)}; {_sentence(kind, problem['msg'])}", field)


def _invalid_body(kind: str, given: Any, message: str) -> ApiError:
    if kind == "missing":
        return invalid("the body is missing")
    if kind in _KINDS_OF_NO_OBJECT:
        return invalid(f"the body is {shown(given)}; it must be a JSON object, and said to be application/json")
    return invalid(f"the body is {shown(given)}; {_sentence(kind, message)}")


def _sentence(kind: str, message: str) -> str:
    """What is allowed, from pydantic's own message."""
    if kind in _KINDS_OF_NO_OBJECT:
        return "it must be an object"
    message = message.removeprefix("Value error, ")
    return f"it must be {message.removeprefix(_START)}" if message.startswith(_START) else message
