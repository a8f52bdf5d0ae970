"""JSON on the command line: values that are written so, and numbers that it does not have."""

import json
import math
import reprlib
from typing import Any


def parse_object(option: str, text: str | None) -> dict[str, Any] | None:
    """The JSON object that is the value of ``option``; None where it was not given.

    Raises:
        ValueError: it is no JSON object.
    """
    if text is None:
        return None
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{option} is {reprlib.repr(text)}; it must be a JSON object: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{option} is {reprlib.repr(text)}; it must be a JSON object")
    return value


def as_json_number(value: float | None) -> float | None:
    """The number, or None, which becomes null, where JSON has none: it is infinite, or not a number."""
    return value if value is not None and math.isfinite(value) else None


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
