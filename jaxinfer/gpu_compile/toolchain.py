"""The two tools of another make, found or asked for by name: JAX's CUDA compiler and NVIDIA's assembler.

They are an extra of their own, with fixed versions, since what they make of a program changes from one to the next.
"""

from importlib.util import find_spec
from pathlib import Path

import jax
from jax.experimental import topologies

from jaxinfer.gpu_compile.targets import GpuTarget

_INSTALL = "pip install 'jaxinfer[gpu-compile]', best in an environment of its own"


def require_tools() -> None:
    """Nothing, if both tools are installed.

    Raises:
        ModuleNotFoundError: one is not; the message says how to install it.
    """
    if not find_spec("jax_plugins") or not find_spec("jax_plugins.xla_cuda12"):
        raise ModuleNotFoundError(f"JAX's compiler for CUDA 12 is not installed: {_INSTALL}")
    find_ptxas()


def compile_only_device(target: GpuTarget) -> jax.Device:
    """A device of ``target`` for which programs can be compiled but not run.

    Sets ``jax_platforms`` to "cpu" if it is not set. JAX would otherwise look for a GPU here and, finding none, refuse
    to load the compiler as well.

    Raises:
        ModuleNotFoundError: a tool is not installed; the message says how to install it.
        RuntimeError: JAX was started before in such a way that it left the compiler out.
    """
    require_tools()
    if not jax.config.jax_platforms:
        jax.config.update("jax_platforms", "cpu")
    try:
        topology = topologies.get_topology_desc(target.name, "cuda", target_config=target.config_text, topology="1x1x1")
    except NotImplementedError as error:
        raise RuntimeError(
            "JAX left its CUDA compiler out when it was started: compile before JAX is used for anything else, or set "
            "JAX_PLATFORMS=cpu in the environment"
        ) from error
    return topology.devices[0]


def find_ptxas() -> Path:
    """The assembler.

    Raises:
        ModuleNotFoundError: it is not installed; the message says how to install it.
    """
    package = find_spec("nvidia.cuda_nvcc") if find_spec("nvidia") else None
    folders = package.submodule_search_locations if package else None
    for path in (Path(folder) / "bin" / "ptxas" for folder in folders or []):
        if path.is_file():
            return path
    raise ModuleNotFoundError(f"NVIDIA's assembler ptxas is not installed: {_INSTALL}")
