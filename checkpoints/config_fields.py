"""Typed look-ups in a configuration that someone else wrote.

The three layouts keep the same facts under other names, as JSON or as GGUF metadata. What they share is here: a value
is taken as what it says it is or refused with its file, key and value, and null counts as absent.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from reprlib import Repr

MAX_LAYERS = 4096
"""More layers than any model has. A config that claims billions must not make a list of that length."""

MAX_CONTEXT = 2**31 - 1
"""Positions are int32 on the device. A larger one would not fit the arithmetic of scaled angles either."""

_QUOTE = Repr(maxstring=100, maxother=100)
"""A wrong value may be of any size, and its error is to be one line."""


class Fields:
    """Values of one configuration by key.

    Raises (every look-up):
        ValueError: the key is absent where it is needed, or its value is of another kind; the message names both.
    """

    def __init__(self, path: Path, values: Mapping[str, object]) -> None:
        self.path = path
        self._values = values

    def __contains__(self, key: str) -> bool:
        """Whether the key is written, be it with null."""
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        """The keys, in the order of the file."""
        return iter(self._values)

    def given(self, key: str) -> object | None:
        """The value as it is, None where there is none."""
        return self._values.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number; ``default`` where it is absent."""
        value = self._get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(key, "a whole number")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A number, as a float; ``default`` where it is absent."""
        value = self._get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.error(key, "a number")
        try:
            return float(value)
        except OverflowError:
            raise self.error(key, "a number that a float can hold") from None

    def flag(self, key: str, default: bool) -> bool:
        """True or false; ``default`` where it is absent."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string; ``default`` where it is absent."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self.error(key, "a string")
        return value

    def section(self, key: str) -> "Fields":
        """The mapping under ``key``; an empty one where it is absent."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.error(key, "a mapping")
        return Fields(self.path, value or {})

    def entries(self, key: str) -> "tuple[Fields, list[str]]":
        """The list under ``key`` as fields of their own, and their keys in order: ``key[0]``, ``key[1]`` and so on."""
        values = self._values.get(key)
        if not isinstance(values, list):
            raise self.error(key, "a list")
        named = {f"{key}[{i}]": value for i, value in enumerate(values)}
        return Fields(self.path, named), list(named)

    def rest(self, known: Collection[str]) -> list[str]:
        """The keys that have a value, without those of ``known``."""
        return [key for key, value in self._values.items() if value is not None and key not in known]

    def num_layers(self, key: str) -> int:
        """A count of layers, at most ``MAX_LAYERS``."""
        value = self.integer(key)
        if not 1 <= value <= MAX_LAYERS:
            raise self.error(key, f"between 1 and {MAX_LAYERS}")
        return value

    def context(self, key: str) -> int:
        """A length of the context in tokens, at most ``MAX_CONTEXT``."""
        value = self.integer(key)
        if not 1 <= value <= MAX_CONTEXT:
            raise self.error(key, f"between 1 and {MAX_CONTEXT}")
        return value

    def head_dim(self, key: str, hidden_key: str, num_heads: int) -> int:
        """The length of a head under ``key``; where it is absent, the hidden size under ``hidden_key`` by heads."""
        if self.given(key) is not None:
            return self.integer(key)
        hidden = self.integer(hidden_key)
        if num_heads < 1 or hidden % num_heads:
            raise self.error(key, f"given, since {hidden_key} {hidden} is no multiple of {num_heads} heads")
        return hidden // num_heads

    def window(self, key: str) -> int | None:
        """A sliding window in tokens; null, 0 and negative numbers mean that there is none."""
        value = self.integer(key, default=0)
        return value if value > 0 else None

    def refuse(self, unsupported: Mapping[str, str]) -> None:
        """Fails on the first key of ``unsupported`` (key -> what it stands for) that is set to something true."""
        for key, meaning in unsupported.items():
            if self._values.get(key):
                raise ValueError(f"{self.path}: {key} is {_QUOTE.repr(self._values[key])}: {meaning} is not supported")

    def valid[**P, T](self, make: Callable[P, T], *values: P.args, **named: P.kwargs) -> T:
        """``make(*values, **named)``, its errors with the name of the file that the values came from."""
        try:
            return make(*values, **named)
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from error

    def error(self, key: str, allowed: str) -> ValueError:
        """The error that says what ``key`` is and what it must be."""
        value = self._values.get(key)
        found = "is missing" if value is None else f"is {_QUOTE.repr(value)}"
        return ValueError(f"{self.path}: {key} {found}; it must be {allowed}")

    def _get(self, key: str, default: object) -> object:
        value = self._values.get(key)
        return default if value is None else value


def read_json(path: Path) -> Fields:
    """The fields of a JSON file that holds one object.

    Raises:
        ValueError: the file cannot be read or holds something else.
    """
    try:
        if os.path.lexists(path) and not path.is_file():  # a pipe would be waited for
            raise ValueError("neither a file nor a link to one")
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a JSON file: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path}: holds a {type(values).__name__}; it must hold a JSON object")
    return Fields(path, values)
