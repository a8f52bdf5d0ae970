"""Compile a function for a GPU that is not there, and say what came out.

XLA's CUDA compiler runs on any machine: it needs a description of the GPU, not the GPU. What it cannot do without one
is to try GEMMs out, so nothing here says how fast a program is; it says that it compiles, what it launches, what it
copies and what memory it needs.
"""

import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, SingleDeviceSharding, use_abstract_mesh

from jaxinfer.gpu_compile.dump import read_dump
from jaxinfer.gpu_compile.ptxas import INSTALL
from jaxinfer.gpu_compile.report import ProgramReport
from jaxinfer.gpu_compile.targets import GpuTarget


@dataclass(frozen=True, kw_only=True)
class GpuProgram:
    """A compiled program, which no machine without that GPU can run, and what it is made of."""

    compiled: jax.stages.Compiled
    report: ProgramReport


def compile_for(target: GpuTarget, function: Any, *arguments: Any, **keywords: Any) -> GpuProgram:
    """Compile ``function`` for ``target`` as a call with these arguments would.

    The first call in a process sets ``jax_platforms`` to "cpu" if it is not set: else JAX looks for a GPU, and without
    one refuses to load the compiler.

    Args:
        target: the GPU.
        function: what ``jax.jit`` returned; what it donates and what is static was said there. Another callable is
            jitted without either. While it is traced, ``jax.sharding.get_abstract_mesh().abstract_device`` tells code
            that wants to know which device it is compiled for.
        arguments, keywords: pytrees with arrays or ``jax.ShapeDtypeStruct`` as leaves; of arrays only shape and dtype
            are used. Static arguments are passed as they are.

    Raises:
        ModuleNotFoundError: the compiler is not installed; the message says how to install it.
        RuntimeError: JAX was already started in a way that leaves its CUDA compiler out.
    """
    device = _device(target)
    place = SingleDeviceSharding(device)
    jitted = function if hasattr(function, "trace") else jax.jit(function)
    arguments, keywords = jax.tree.map(lambda leaf: _abstract(leaf, place), (arguments, keywords))
    with use_abstract_mesh(_mesh(target)), tempfile.TemporaryDirectory() as folder:
        traced = jitted.trace(*arguments, **keywords)
        with jax.default_device(device):
            lowered = traced.lower(lowering_platforms=("cuda",))
        compiled = lowered.compile(compiler_options={"xla_dump_to": folder, "xla_dump_emitter_re": "ptx"})
        report = _report(target, compiled, Path(folder))
    return GpuProgram(compiled=compiled, report=report)


def _abstract(leaf: Any, place: SingleDeviceSharding) -> Any:
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place)
    return leaf


def _report(target: GpuTarget, compiled: jax.stages.Compiled, folder: Path) -> ProgramReport:
    dump = read_dump(folder)
    memory = compiled.memory_analysis()
    assert memory is not None, "XLA's GPU compiler always says what memory a program needs"
    return ProgramReport(
        target=target.name,
        kernels=dump.kernels(target.architecture),
        copies=dump.copies(),
        num_memsets=dump.num_memsets,
        num_command_buffers=dump.num_command_buffers,
        num_outside_command_buffers=dump.num_outside_command_buffers,
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes,
        alias_bytes=memory.alias_size_in_bytes,
        temporary_bytes=memory.temp_size_in_bytes,
        hlo=dump.hlo_text,
    )


def _mesh(target: GpuTarget) -> AbstractMesh:
    device = AbstractDevice(device_kind=target.device_kind, num_cores=target.core_count, platform="gpu")
    return AbstractMesh((1,), ("x",), axis_types=(AxisType.Auto,), abstract_device=device)


@cache
def _device(target: GpuTarget) -> jax.Device:
    if not any(find_spec(f"jax_plugins.{name}") for name in ("xla_cuda12", "xla_cuda13") if find_spec("jax_plugins")):
        raise ModuleNotFoundError(f"the CUDA compiler of JAX is not installed: {INSTALL}")
    if not jax.config.jax_platforms:
        jax.config.update("jax_platforms", "cpu")
    try:
        topology = topologies.get_topology_desc(target.name, "cuda", target_config=target.config_text, topology="1x1x1")
    except NotImplementedError as error:
        raise RuntimeError(
            "JAX was started without its CUDA compiler: set JAX_PLATFORMS=cpu in the environment, or compile before "
            "any other use of JAX"
        ) from error
    return topology.devices[0]
