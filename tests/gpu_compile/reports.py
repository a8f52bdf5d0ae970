"""Reports of the programs of ``docs/gpu-static.md``, each compiled once for all tests that look at it."""

from functools import cache

from jaxinfer.gpu_compile import TARGETS, ProgramReport
from scripts.gpu_static.attention import Launch
from scripts.gpu_static.forward import Step
from scripts.gpu_static.matmul import Product
from scripts.gpu_static.sample import Sample
from scripts.gpu_static.tables import PAGE, TARGET_NAMES, Reports, with_table


@cache
def report(program: Launch | Product | Sample | Step, target: str) -> ProgramReport:
    """What comes out of ``program`` for the target of that name."""
    return program.compile(TARGETS[target])


def everywhere(program: Launch | Product | Sample | Step) -> Reports:
    """Of one program, for every target of the page."""
    return {target: report(program, target) for target in TARGET_NAMES}


def assert_on_the_page(name: str, table: str) -> None:
    """That the page's table ``name`` is the one given, which was made of what is compiled today."""
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page, name, table) == page, "run `make gpu-static`"
