"""Reports as tables in Markdown, and where they stand in the page."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from jaxinfer.gpu_compile import TARGETS, GpuTarget, ProgramReport
from scripts import markdown
from scripts.gpu_static.attention import Launch
from scripts.gpu_static.forward import Step
from scripts.gpu_static.matmul import Product
from scripts.gpu_static.sample import Sample
from scripts.markdown import markdown_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gpu-static.md"
TARGET_NAMES = ("A10", "A100-80", "H100")
"""One target of each generation. The others have another number of multiprocessors, and memory."""

Reports = Mapping[str, ProgramReport]
"""Of one program, by name of the target."""


class Program(Protocol):
    """What can be compiled for a target."""

    def compile(self, target: GpuTarget) -> ProgramReport:
        """What comes out for ``target``."""
        ...


def compile_everywhere(program: Program) -> Reports:
    """The reports of one program for every target of the page."""
    return {name: program.compile(TARGETS[name]) for name in TARGET_NAMES}


def launch_table(rows: Iterable[tuple[Launch, Reports]]) -> str:
    """The table of single launches."""
    return markdown_table(
        "launch | heads | cache | note | registers | shared KB | kernels | temporary KB",
        [
            [
                launch.label,
                each_target(
                    reports, lambda report: max(kernel.code.registers for kernel in report.kernels if kernel.code)
                ),
                each_target(
                    reports, lambda report: round(max(kernel.shared_bytes for kernel in report.kernels) / 1024)
                ),
                each_target(reports, lambda report: len(report.kernels)),
                each_target(reports, lambda report: round(report.temporary_bytes / 1024)),
            ]
            for launch, reports in rows
        ],
    )


def product_table(rows: Iterable[tuple[Product, Reports]]) -> str:
    """The table of products."""
    return markdown_table(
        "product, N x K | weights | rows | note | tile | registers | shared KB | instructions a weight | blocks",
        [
            [
                product.label,
                each_of(product.tile_for(TARGETS[name]) for name in TARGET_NAMES),
                each_target(reports, lambda report: report.kernels[0].code.registers),
                each_target(reports, lambda report: round(report.kernels[0].shared_bytes / 1024)),
                each_of(product.weight_cost(TARGETS[name], reports[name]) or "-" for name in TARGET_NAMES),
                each_target(reports, lambda report: report.kernels[0].grid[0] * report.kernels[0].grid[1]),
            ]
            for product, reports in rows
        ],
    )


def sample_table(rows: Iterable[tuple[Sample, Reports]]) -> str:
    """The table of sample programs."""
    return markdown_table(
        "drawn | kernels | command buffers | launches outside | temporary MB",
        [
            [
                sample.label,
                each_target(reports, lambda report: len(report.kernels)),
                each_target(reports, lambda report: report.num_command_buffers),
                each_target(reports, lambda report: report.num_outside_command_buffers),
                each_target(reports, lambda report: round(report.temporary_bytes / 2**20, 1)),
            ]
            for sample, reports in rows
        ],
    )


def step_table(rows: Iterable[tuple[Step, Reports]]) -> str:
    """The table of whole forward programs."""
    return markdown_table(
        "program | weights | cache | implementation | kernels | of them ours | command buffers | launches outside"
        " | copied KB | temporary MB",
        [
            [
                step.label,
                each_target(reports, lambda report: len(report.kernels)),
                each_target(reports, lambda report: sum(kernel.kind == "pallas" for kernel in report.kernels)),
                each_target(reports, lambda report: report.num_command_buffers),
                each_target(reports, lambda report: report.num_outside_command_buffers),
                each_target(reports, lambda report: round(sum(copy.num_bytes for copy in report.copies) / 1024)),
                each_target(reports, lambda report: round(report.temporary_bytes / 2**20, 1)),
            ]
            for step, reports in rows
        ],
    )


def each_target(reports: Reports, number: Callable[[ProgramReport], float]) -> str:
    """A number of each target's report, "1 / 2 / 3"; once where all are equal."""
    return each_of(number(reports[name]) for name in TARGET_NAMES)


def each_of(values: Iterable[object]) -> str:
    """A value for each target, likewise."""
    texts = list(map(str, values))
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)


def with_table(page: str, name: str, table: str) -> str:
    """The page with its table ``name`` replaced.

    Raises:
        ValueError: the page has no such table.
    """
    return markdown.with_table(page, name, table, "make gpu-static")
