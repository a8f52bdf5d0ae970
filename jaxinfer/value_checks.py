"""Checks of single values that a caller gives; each error names the value and what is allowed."""

import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from numbers import Integral, Real
from typing import Any

_LONGEST_ERROR = 1000
"""Characters of what an error of a caller's own code says; it may quote a whole text."""


def shown(value: object) -> str:
    """A value as an error names it, which may be any and is cut short."""
    try:
        return reprlib.repr(value)
    except Exception:  # a number of more digits than Python writes, or an object that cannot be shown
        return f"a {type(value).__name__} that cannot be written"


def shown_error(error: Exception) -> str:
    """What an error says, cut short; its type where it says nothing."""
    try:
        text = str(error)
    except Exception:  # one of a caller's own code
        text = ""
    return (text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]}...") or type(error).__name__


def check_number(name: str, value: object, allowed: str, ok: Callable[[Any], bool]) -> None:
    """Raises ValueError unless ``value`` is a real number that is ``ok``; NaN fails every comparison in it."""
    if isinstance(value, bool) or not isinstance(value, Real) or not ok(value):
        raise ValueError(f"{name} is {shown(value)}; it must be {allowed}")


def check_int(name: str, value: object, allowed: str, lowest: int, highest: int | None = None) -> None:
    """Raises ValueError unless ``value`` is a whole number from ``lowest`` to ``highest``, which None leaves open."""
    # Integral, and Real above, since numbers often come from NumPy.
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or value < lowest or (highest is not None and value > highest):  # type: ignore[operator]
        raise ValueError(f"{name} is {shown(value)}; it must be {allowed}")


def check_ints(name: str, values: Collection[object], allowed: str, lowest: int) -> None:
    """Raises ValueError unless each of ``values``, which may be very many, is a whole number from ``lowest``."""
    if not all_of_kind(values, Integral) or any(value < lowest for value in values):  # type: ignore[operator]
        for value in values:
            check_int(name, value, allowed, lowest)


def check_token_ids(name: str, values: Collection[Any], vocab_size: int) -> None:
    """Raises ValueError unless each of ``values``, which may be very many, is a token id of a model."""
    # Integral, since ids often come from NumPy. All at once, for there may be as many as tokens in the vocabulary.
    if not values or (all_of_kind(values, Integral) and min(values) >= 0 and max(values) < vocab_size):
        return
    for value in values:
        if not all_of_kind([value], Integral) or not 0 <= value < vocab_size:
            raise ValueError(f"{name} has {shown(value)}; a token id is a whole number in [0, {vocab_size})")


def all_of_kind(values: Collection[object], kind: type) -> bool:
    """Whether each is of a kind of number, which True and False are not; looks at each type once, not at each value."""
    return all(issubclass(given, kind) and given is not bool for given in set(map(type, values)))


def check_bool(name: str, value: object) -> None:
    """Raises ValueError unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {shown(value)}; it must be True or False")


def checked_items(name: str, values: object, allowed: str) -> tuple[Any, ...]:
    """The items of a list, or of anything else that gives some but for text, bytes and dicts, which give other things.

    Raises:
        ValueError: ``values`` has no items; the message says that it must be ``allowed``.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise ValueError(f"{name} is {shown(values)}; it must be {allowed}")
    try:
        return tuple(values)
    except TypeError as error:  # an array without axes says that it can be iterated, and cannot
        raise ValueError(f"{name} is {shown(values)}; it must be {allowed}") from error
