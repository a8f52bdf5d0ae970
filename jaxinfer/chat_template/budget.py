"""What one rendering may take: seconds, and the weight of what it builds.

A value weighs its characters, and ``_ITEM_WEIGHT`` for each value that it consists of, through all levels of nesting
and as often as it would be written out. Nothing in a template can change a value once it is made, so that a bound at
the making holds for all that is done with it later: written as text or JSON, compared, hashed.
"""

import time
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, Set, ValuesView
from itertools import chain
from types import NoneType
from typing import Any

import jinja2

MAX_SECONDS = 5.0
MAX_WEIGHT = 8 * 2**20
MAX_BUILT = 2**28  # characters and items together, of all values that a rendering makes
MAX_BITS = 4096  # of a whole number: dividing greater ones takes long
_ITEM_WEIGHT = 16  # a list takes eight bytes for an item, and sorting or comparing one much longer than a character

_WITHOUT_PARTS = (str, int, float, range, bytes, NoneType)
_COLLECTIONS = (Sequence, Set, KeysView, ValuesView, ItemsView)


class Budget:
    """Of one rendering. Every method raises ``TemplateError`` where a bound is passed."""

    def __init__(self) -> None:
        self._num_built = 0
        self._deadline = time.monotonic() + MAX_SECONDS
        # By id, which nothing else can take: the value itself is held with its weight.
        self._given: dict[int, tuple[int, Any]] = {}

    def give(self, value: Any) -> int:
        """Weigh what the template is given, once: conversations are long, and templates pass them on in every round."""
        if id(value) in self._given:
            return self._given[id(value)][0]
        weight = _own_weight(value)
        if not isinstance(value, _WITHOUT_PARTS):
            weight += sum(map(self.give, _parts(value)))
            self._given[id(value)] = weight, value
        self.check_weight(weight)
        return weight

    def step(self) -> None:
        """To be called between any two steps of a template: it ends where there is no time left."""
        if time.monotonic() > self._deadline:
            raise jinja2.TemplateError(f"it takes more than {MAX_SECONDS} seconds")

    def in_time[T](self, value: T) -> T:
        """``value``, which one step has made, if there is time left."""
        self.step()
        return value

    def built(self, value: Any) -> Any:
        """``value``, which one step has made; an iterator is bounded as its items come."""
        self.step()
        if isinstance(value, Iterator):
            return self.weighed(value)
        self.check_weight(self.weigh(value))
        self._count_built(_shallow_size(value))
        return value

    def weigh(self, value: Any) -> int:
        """The weight of ``value``, found in time that does not grow beyond the bound on it."""
        if isinstance(value, _WITHOUT_PARTS):  # most are, and this is quick
            return _own_weight(value)
        weight = 0
        waiting = [value]
        while waiting:
            item = waiting.pop()
            if id(item) in self._given:
                weight += self._given[id(item)][0]
            else:
                weight += _own_weight(item)
                waiting.extend(_parts(item))
            self.check_weight(weight)
        return weight

    def rounds[T](self, items: Iterable[T]) -> Iterator[T]:
        """``items``, each a step."""
        for item in items:
            self.step()
            yield item

    def weighed[T](self, items: Iterable[T]) -> Iterator[T]:
        """``items``, together no heavier than a list of them may be."""
        weight = 0
        for item in items:
            weight += self.weigh(item)
            self.check_weight(weight)
            yield self.in_time(item)

    def joined(self, pieces: Iterable[str]) -> str:
        """One text of ``pieces``, which may come one by one."""
        text = "".join(self._while_bounded(pieces))
        self._count_built(len(text))
        return text

    def check_weight(self, weight: int) -> None:
        """For what would be made: to be called before a step that multiplies."""
        if weight > MAX_WEIGHT:
            raise jinja2.TemplateError(f"it builds a value of more than {MAX_WEIGHT} characters or items")

    def _while_bounded(self, pieces: Iterable[str]) -> Iterator[str]:
        size = 0
        for piece in pieces:
            size += len(piece)
            self.check_weight(size)
            yield self.in_time(piece)

    def _count_built(self, size: int) -> None:
        self._num_built += size
        if self._num_built > MAX_BUILT:
            raise jinja2.TemplateError(f"its values are together more than {MAX_BUILT} characters and items")


def repeated_weight(value: Any, times: int) -> int:
    """Of ``value * times``, without what the items of a list weigh themselves."""
    return _shallow_size(value) * times


def check_bits(num_bits: int) -> None:
    """TemplateError for a whole number so long."""
    if num_bits > MAX_BITS:
        raise jinja2.TemplateError(f"it builds a whole number of more than {MAX_BITS} bits")


def _own_weight(value: Any) -> int:
    if isinstance(value, str):
        return _ITEM_WEIGHT + len(value)
    if isinstance(value, range):
        return _ITEM_WEIGHT * (1 + len(value))
    if isinstance(value, int):
        check_bits(value.bit_length())
    return _ITEM_WEIGHT


def _parts(value: Any) -> Iterable[Any]:
    """What ``value`` consists of; nothing where its parts are never written out, as those of a namespace."""
    if isinstance(value, _WITHOUT_PARTS):
        return ()
    if isinstance(value, list | tuple):  # most are, and the classes below are slow to ask
        return value
    if isinstance(value, Mapping):
        return chain(value.keys(), value.values())
    return value if isinstance(value, _COLLECTIONS) else ()


def _shallow_size(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    return _ITEM_WEIGHT * len(value) if isinstance(value, list | tuple | dict) else 0
