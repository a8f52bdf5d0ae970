"""Skips the files of this folder, unread, where there is no compiler for GPUs, as in the main environment.

And where JAX was not told to stay on the CPU: the compiler would tell it, and all tests that follow would stay there.
Two environments have the compiler. One has the newest jax, whose figures most files here hold programs to; the other
has the oldest and jax_triton, for the files that are called after it.
"""

from importlib.util import find_spec
from pathlib import Path

import jax
import pytest

from jaxinfer.gpu_compile.toolchain import require_tools


class Skipped(pytest.Module):
    """A test file as one skipped item."""

    def collect(self):
        target = "test-oldest-jax" if _needs_triton(self.path) else "test-gpu-compile"
        pytest.skip(f"needs JAX's CUDA compiler and JAX_PLATFORMS=cpu: make {target}", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    try:
        require_tools()
    except ModuleNotFoundError:
        return Skipped.from_parent(parent, path=module_path)
    is_its_place = _needs_triton(module_path) == bool(find_spec("jax_triton"))
    if jax.config.jax_platforms == "cpu" and is_its_place:
        return None
    return Skipped.from_parent(parent, path=module_path)


def _needs_triton(module_path: Path) -> bool:
    return module_path.name.startswith("test_triton_")
