"""Compile programs for GPUs that are not there, and read from the result what they launch, copy and need.

``compile_for(TARGETS["A10"], function, *arguments).report`` is all there is to it.
"""

from jaxinfer.gpu_compile.compiler import GpuProgram, compile_for
from jaxinfer.gpu_compile.report import CopyReport, KernelCode, KernelKind, KernelReport, ProgramReport
from jaxinfer.gpu_compile.targets import TARGETS, GpuTarget

__all__ = [
    "TARGETS",
    "CopyReport",
    "GpuProgram",
    "GpuTarget",
    "KernelCode",
    "KernelKind",
    "KernelReport",
    "ProgramReport",
    "compile_for",
]
