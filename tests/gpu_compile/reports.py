"""Reports of the programs of ``docs/gpu-static.md``, each compiled once for all tests that look at it."""

from functools import cache

from jaxinfer.gpu_compile import TARGETS, ProgramReport
from scripts.gpu_static.attention import Launch
from scripts.gpu_static.forward import Step
from scripts.gpu_static.matmul import Product


@cache
def report(program: Launch | Product | Step, target: str) -> ProgramReport:
    """What comes out of ``program`` for the target of that name."""
    return program.compile(TARGETS[target])
