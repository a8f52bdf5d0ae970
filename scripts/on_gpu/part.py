"""The parts of the check, in the order of their worth, and the rows that they yield."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from scripts.on_gpu.settings import Settings


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes:
        table: its title; rows of several parts may stand in one table.
        values: by name of the column: numbers, texts, booleans, or None for what is not known.
        is_fault: whether the row says that something is wrong, so that the check as a whole fails.
        num_not_run: cases that the row stands for and that no time was left for.
    """

    table: str
    values: dict[str, Any]
    is_fault: bool = False
    num_not_run: int = 0

    @classmethod
    def of_what_was_not_run(cls, table: str, num_not_run: int) -> "Row":
        """A row without numbers, so that a table that ends early does not look whole."""
        return cls(table, {"not run": num_not_run}, num_not_run=num_not_run)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of the check.

    Attributes:
        name: its name; parts whose names begin alike, up to a point, can be asked for together.
        function: ``module:function``, a text so that the parent imports no jax and leaves the device to its children.
        seconds: how long it may take where all parts run in the default time. In more or less time, or with parts
            left out, it has its share.
        arguments: of the function, after the settings.
    """

    name: str
    function: str
    seconds: float
    arguments: tuple[str, ...] = ()

    def rows(self, settings: Settings) -> Iterator[Row]:
        """Measure; each row comes as soon as it is known."""
        module, _, function = self.function.partition(":")
        measure: Callable[..., Iterator[Row]] = getattr(import_module(module), function)
        return measure(settings, *self.arguments)


DEFAULT_SECONDS = 469
"""For all parts together: what ends a part that hangs, and starts the next one, fits the rest of eight minutes."""

_MODEL = "scripts.on_gpu.model:rows"

PARTS = (
    Part(name="versions", function="scripts.on_gpu.versions:rows", seconds=25),
    Part(name="selftest", function="scripts.on_gpu.selftest:rows", seconds=25),
    Part(name="correctness.attention", function="scripts.on_gpu.attention_correctness:rows", seconds=55),
    Part(name="correctness.products", function="scripts.on_gpu.product_correctness:rows", seconds=55),
    Part(name="speed.products", function="scripts.on_gpu.product_speed:rows", seconds=49),
    Part(name="speed.attention", function="scripts.on_gpu.attention_speed:rows", seconds=35),
    Part(name="model.bfloat16", function=_MODEL, seconds=45, arguments=("bfloat16", "bfloat16")),
    Part(name="model.int4", function=_MODEL, seconds=45, arguments=("int4/64", "bfloat16")),
    Part(name="model.int4-int8-cache", function=_MODEL, seconds=45, arguments=("int4/64", "int8")),
    Part(name="model.int8", function=_MODEL, seconds=45, arguments=("int8", "bfloat16")),
    Part(name="pytorch", function="scripts.on_gpu.pytorch:rows", seconds=45),
)


def named(names: str) -> list[Part]:
    """The parts of a list such as ``versions,speed``, in the order of ``PARTS``.

    Raises:
        ValueError: a name is that of no part and of no group.
    """
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if not any(_is_of(part, name) for part in PARTS):
            raise ValueError(f"no part is named {name!r}; there are {', '.join(part.name for part in PARTS)}")
    return [part for part in PARTS if any(_is_of(part, name) for name in wanted)]


def _is_of(part: Part, name: str) -> bool:
    return part.name == name or part.name.startswith(f"{name}.")
