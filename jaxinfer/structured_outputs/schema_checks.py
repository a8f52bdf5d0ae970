"""What ``llguidance`` takes from a JSON schema without a word and does not hold: refused here, before it.

It reads every number as a float of 64 bits, and not to the nearest one where there are many digits or a great exponent:
an id of 64 bits would become another. And it counts a key that comes twice as two.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from jaxinfer.value_checks import shown

_VALUES = {"const", "enum"}
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}

_LARGEST = 2**53
"""Up to here every whole number is a float."""
_MOST_PLACES = 22
"""10**22 is the last power of ten that is a float: a whole number up to 2**53 divided by it is rounded once."""

_UNWRITABLE = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")
"""Control characters without a short escape; see the settings in ``lark_source``."""


def check_schema(schema: object) -> None:
    """Looks at every key anywhere, in data as well: a reference may take any part of a schema for a schema.

    Raises:
        ValueError: a number in ``const``, ``enum``, ``multipleOf`` or a bound is not held as it is written, a text in
            ``const`` or ``enum`` has a control character that cannot be written, or ``minProperties`` asks for two keys
            or more that ``required`` does not name; says which.
        RecursionError: it is nested too deeply.
    """
    _check(schema, None)


def _check(value: object, keyword: str | None) -> None:
    """``keyword``: what ``value`` is a part of, where its numbers and texts count."""
    if isinstance(value, Mapping):
        _check_min_properties(value)
        for key, part in value.items():
            counts = key in _VALUES or (key in _BOUNDS and not isinstance(part, Mapping))
            _check(part, key if counts else keyword)
    elif isinstance(value, list | tuple):
        for part in value:
            _check(part, keyword)
    elif keyword in _VALUES and isinstance(value, str) and (found := _UNWRITABLE.search(value)):
        raise ValueError(f"the text {shown(value)} in {keyword} has U+{ord(found[0]):04X}, which cannot be written")
    elif keyword is not None and isinstance(value, int | float) and not _is_held(value):
        allowed = f"up to 2**53 from zero, of at most 15 digits and {_MOST_PLACES} decimal places"
        raise ValueError(f"the number {shown(value)} in {keyword} would be altered; numbers {allowed} are held")


def _is_held(number: float) -> bool:
    """Whether ``number``, which is finite, is read back exactly from what ``json.dumps`` writes."""
    if isinstance(number, int) or abs(number) > _LARGEST:
        return abs(number) <= _LARGEST
    _, digits, exponent = Decimal(float.__repr__(number)).as_tuple()
    return int("".join(map(str, digits))) <= _LARGEST and int(exponent) >= -_MOST_PLACES


def _check_min_properties(schema: Mapping[Any, Any]) -> None:
    """Of the keys that have no name in the schema any may come twice; the first of them is one more for certain."""
    fewest, required = schema.get("minProperties"), schema.get("required")
    if not isinstance(fewest, int | float) or (required is not None and not isinstance(required, list | tuple)):
        return
    certain = len(set(map(str, required or ()))) + 1
    if fewest > certain:
        raise ValueError(
            f"minProperties {shown(fewest)} is not held, since a key may come twice; {certain} is the most here: "
            "one more than required names"
        )
