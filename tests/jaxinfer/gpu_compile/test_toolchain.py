"""The compiler where it is not installed."""

import jax
import jax.numpy as jnp
import pytest

from jaxinfer.gpu_compile import TARGETS, compile_for, toolchain


def test_a_missing_compiler_says_how_to_install_it(monkeypatch):
    before = jax.config.jax_platforms
    monkeypatch.setattr(toolchain, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"compiler for CUDA 12 .* pip install 'jaxinfer\[gpu-compile\]'"):
        compile_for(TARGETS["A10"], jnp.sin, jnp.ones(3))
    assert jax.config.jax_platforms == before
