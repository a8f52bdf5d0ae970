"""What the entries of every operation hold arrays and numbers to.

A shape that is wrong by one would on a GPU be read, written and counted in somebody else's memory, without a word; so
every axis of every array is held to the others, whatever the implementation.
"""

from collections.abc import Sequence
from numbers import Real

from jaxtyping import Array

FLOATS = ("float32", "bfloat16")
INDEX = ("int32",)

_MAX_FLOAT32 = 3.4028235e38


def check_array(name: str, array: Array, dtypes: tuple[str, ...], **axes: int) -> None:
    """Refuse an array without exactly these axes and one of these dtypes.

    Raises:
        ValueError: it has others, or it is no array.
    """
    _check_is_array(name, array)
    if array.shape != tuple(axes.values()):
        expected = ", ".join(f"{axis} = {size}" for axis, size in axes.items())
        raise ValueError(f"{name} has the shape {list(array.shape)}; it must be [{expected}]")
    if array.dtype.name not in dtypes:
        raise ValueError(f"{name} is {array.dtype.name}; it must be {' or '.join(dtypes)}")


def check_rank(name: str, array: Array, axes: str) -> None:
    """Refuse an array without so many axes, or with one that is empty.

    Raises:
        ValueError: it is one, or it is no array.
    """
    _check_is_array(name, array)
    if array.ndim != len(axes.split()) or 0 in array.shape:
        raise ValueError(f"{name} has the shape {list(array.shape)}; it must be [{axes}], none of them 0")


def check_factor(name: str, value: float, least: float = -_MAX_FLOAT32) -> float:
    """``value`` as a float, if it is a number that float32 has, and at least ``least``.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(value, Real) or not least <= value <= _MAX_FLOAT32:
        raise ValueError(f"{name} is {value!r}; it must be a number of Python in [{least:g}, {_MAX_FLOAT32:g}]")
    return float(value)


def check_one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    """Refuse a value that is none of ``allowed``, or of another type (True for 1, say).

    Raises:
        ValueError: it is none.
    """
    if not any(type(value) is type(each) and value == each for each in allowed):
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, allowed))}")


def check_count(name: str, value: object, least: int = 1) -> None:
    """Refuse what is no whole number from ``least`` on.

    Raises:
        ValueError: it is none.
    """
    if type(value) is not int or value < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number, at least {least}")


def _check_is_array(name: str, array: object) -> None:
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        raise ValueError(f"{name} is a {type(array).__name__}; it must be an array")
