"""Reports of the programs of ``docs/gpu-static.md``, each compiled once for all tests that look at it.

A program takes about a second for each target, so the quick tests compile each for one of them, in turn; those marked
slow for the others too.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from typing import Any

import pytest

from jaxinfer.gpu_compile import TARGETS, ProgramReport
from scripts.gpu_static.attention import Launch
from scripts.gpu_static.forward import Step
from scripts.gpu_static.matmul import Product
from scripts.gpu_static.sample import Sample
from scripts.gpu_static.tables import PAGE, TARGET_NAMES, Reports, with_table

Program = Launch | Product | Sample | Step


@cache
def report(program: Program, target: str) -> ProgramReport:
    """What comes out of ``program`` for the target of that name."""
    return program.compile(TARGETS[target])


def everywhere(program: Program) -> Reports:
    """Of one program, for every target of the page."""
    return {target: report(program, target) for target in TARGET_NAMES}


def on_targets(programs: Sequence[Program], typical: Collection[Program] = ()) -> list[Any]:
    """Parameters (program, target): every program for every target of the page, slow but for one target of each.

    The turn shifts after each round of targets: what changes with every third program meets all of them.

    Args:
        typical: programs that are quick for every target.
    """
    count = len(TARGET_NAMES)
    return [
        pytest.param(
            program,
            target,
            id=f"{program.label}-{target}",
            marks=() if program in typical or (i + i // count) % count == j else pytest.mark.slow,
        )
        for i, program in enumerate(programs)
        for j, target in enumerate(TARGET_NAMES)
    ]


def assert_on_the_page(name: str, table: str) -> None:
    """That the page's table ``name`` is the one given, which was made of what is compiled today."""
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page, name, table) == page, "run `make gpu-static`"


def assert_row_on_the_page(
    table_of: Callable[[Iterable[tuple[Any, Reports]]], str], program: Program, target: str
) -> None:
    """That the page has the program's row of a table, with the numbers of one target that are compiled today."""
    row = table_of([(program, dict.fromkeys(TARGET_NAMES, report(program, target)))]).splitlines()[-1]
    rows = [_of_one_target(line, target) for line in PAGE.read_text(encoding="utf-8").splitlines()]
    assert _of_one_target(row, target) in rows, "run `make gpu-static`"


def _of_one_target(row: str, target: str) -> list[str]:
    """The cells, and of those with a number for each target the one of ``target``."""
    cells = [cell.split(" / ") for cell in row.strip("| ").split(" | ")]
    return [numbers[TARGET_NAMES.index(target) if len(numbers) == len(TARGET_NAMES) else 0] for numbers in cells]
