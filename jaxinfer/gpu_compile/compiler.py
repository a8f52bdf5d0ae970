"""Compile a function for a GPU that is not there, and say what came out.

XLA's CUDA compiler runs on any machine: it needs a description of the GPU, not the GPU. What it cannot do without one
is try GEMMs out and choose, so nothing here says how fast a program is: it says that it compiles, what it launches,
what it copies and what memory it needs. The numbers come from the compiler's dump, since no interface of JAX has them;
the dump is asked for with the one compilation, so no environment variable is needed and many may follow each other.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh

from jaxinfer.gpu_compile.dump import Dump
from jaxinfer.gpu_compile.report import ProgramReport
from jaxinfer.gpu_compile.targets import TARGETS, GpuTarget
from jaxinfer.gpu_compile.toolchain import compile_only_device

_DUMP = {
    # Nothing but the PTX: with ".*" the dump also holds every step of every kernel's compilation and takes its time.
    "xla_dump_emitter_re": "ptx",
    # XLA writes no PTX for a kernel that it finds in a cache.
    "xla_gpu_kernel_cache_file": "",
}


@dataclass(frozen=True, kw_only=True)
class GpuProgram:
    """A compiled program, which no machine without that GPU can run, and what it is made of."""

    compiled: jax.stages.Compiled
    report: ProgramReport


def compile_for(target: GpuTarget, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> GpuProgram:
    """Compile ``function`` for ``target``, as a call with these arguments would on a machine that has one.

    While it is traced and lowered, ``jax.sharding.get_abstract_mesh().abstract_device`` holds the GPU's device kind and
    number of cores, for code that wants to know which GPU it is compiled for. A persistent compilation cache, where
    one is set, is of no use to such a program.

    Best in a process of its own: the first call sets ``jax_platforms`` to "cpu" if it is not set, and what the process
    runs after it runs on the CPU, whatever is there. Where JAX was started before, that changes nothing any more.

    Args:
        target: the GPU.
        function: what ``jax.jit`` returned, which has settled what is donated and what is static; anything else is
            jitted without either.
        arguments, keywords: pytrees whose leaves are arrays or ``jax.ShapeDtypeStruct``; of arrays only shape and
            dtype count. Numbers and static arguments are passed on as they are.

    Raises:
        ModuleNotFoundError: the compiler or the assembler is not installed; the message says how to install it.
        TypeError: ``target`` is no ``GpuTarget``.
        ValueError: ``function`` places its work elsewhere.
        RuntimeError: JAX was already started in such a way that it left the compiler out.
        jax.errors.JaxRuntimeError: the program does not compile: a kernel needs more shared memory than the GPU has,
            say. What ``function`` raises while it is traced passes through as well.
    """
    if not isinstance(target, GpuTarget):
        raise TypeError(f"target is {target!r}; it must be one of TARGETS: {', '.join(TARGETS)}")
    device = compile_only_device(target)
    jitted: Any = function if hasattr(function, "trace") else jax.jit(function)
    arguments, keywords = jax.tree.map(_without_place, (arguments, keywords))
    with use_abstract_mesh(_mesh(target)), tempfile.TemporaryDirectory() as folder:
        traced = jitted.trace(*arguments, **keywords)
        # From here on everything is for this device. Not before: what is computed during the trace runs on the CPU.
        with jax.default_device(device):
            lowered = traced.lower(lowering_platforms=("cuda",))
        compiled = lowered.compile(compiler_options=_DUMP | {"xla_dump_to": folder})
        if not any(Path(folder).glob("*.thunk_sequence.txt")):
            raise ValueError(
                f"XLA left nothing of a program for {target.name}: the function places its work on devices of its own, "
                "or XLA_FLAGS in the environment change what is dumped"
            )
        return GpuProgram(compiled=compiled, report=_report(target, compiled, Dump(Path(folder))))


def _without_place(leaf: Any) -> Any:
    is_array = hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, np.generic)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if is_array else leaf


def _mesh(target: GpuTarget) -> AbstractMesh:
    device = AbstractDevice(device_kind=target.device_kind, num_cores=target.core_count, platform="gpu")
    return AbstractMesh((1,), ("x",), axis_types=(AxisType.Auto,), abstract_device=device)


def _report(target: GpuTarget, compiled: jax.stages.Compiled, dump: Dump) -> ProgramReport:
    memory = compiled.memory_analysis()
    assert memory is not None, "XLA's GPU compiler always says what memory a program needs"
    return ProgramReport(
        target=target.name,
        kernels=tuple(dump.kernels(target.architecture)),
        copies=tuple(dump.copies()),
        num_memsets=dump.num_memsets,
        num_command_buffers=dump.num_command_buffers,
        num_outside_command_buffers=dump.num_outside_command_buffers,
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes,
        alias_bytes=memory.alias_size_in_bytes,
        temporary_bytes=memory.temp_size_in_bytes,
        hlo=dump.hlo.text,
    )
