"""Skips the files of this folder, unread, where there is no compiler for GPUs, as in the main environment.

And where JAX was not told to stay on the CPU: the compiler would tell it, and all tests that follow would stay there.
"""

from pathlib import Path

import jax
import pytest

from jaxinfer.gpu_compile.toolchain import require_tools


class Skipped(pytest.Module):
    """A test file as one skipped item."""

    def collect(self):
        pytest.skip("needs JAX's CUDA compiler and JAX_PLATFORMS=cpu: make test-gpu-compile", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    try:
        require_tools()
    except ModuleNotFoundError:
        return Skipped.from_parent(parent, path=module_path)
    return None if jax.config.jax_platforms == "cpu" else Skipped.from_parent(parent, path=module_path)
