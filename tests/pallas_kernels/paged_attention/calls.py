"""The two operations called with cases, each compiled once for a shape."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.paged_attention import Config, Implementation, LayerCache, decode_attention, paged_attention
from tests.pallas_kernels.paged_attention.attention_cases import Case
from tests.pallas_kernels.paged_attention.decode_cases import DecodeCase, Outcome

# What these tests wait for is the compiler: an interpreted kernel is a program of some thousand operations.
_FAST = {"xla_backend_optimization_level": 0}
_STATIC = ("window", "scale", "implementation", "config")
_paged_attention = jax.jit(paged_attention, static_argnames=_STATIC, compiler_options=_FAST)
_decode_attention = jax.jit(decode_attention, static_argnames=(*_STATIC, "norm_eps"), compiler_options=_FAST)


def attend(
    case: Case, implementation: Implementation, config: Config | None = None, *, into: np.ndarray | None = None
) -> np.ndarray:
    """``paged_attention`` of the case: of its blocks [N, Q, H, D], or with ``into`` what became of that."""
    out = _paged_attention(
        **arguments_of(case.arrays),
        into=None if into is None else jnp.asarray(into),
        window=case.window,
        scale=case.scale,
        implementation=implementation,
        config=config,
    )
    return np.asarray(out.reshape(case.arrays["q"].shape) if into is None else out)


def decode(case: DecodeCase, implementation: Implementation, config: Config | None = None) -> Outcome:
    """``decode_attention`` of the case."""
    result = _decode_attention(
        **arguments_of(case.arrays),
        norm_eps=case.norm_eps,
        window=case.window,
        scale=case.scale,
        implementation=implementation,
        config=config,
    )
    return outcome_of(case, *result)


def outcome_of(case: DecodeCase, attended: jax.Array, cache: LayerCache, arrivals: jax.Array) -> Outcome:
    """What ``decode_attention`` returned for the case, as NumPy; of the tokens after the decode rows, nothing."""
    num_rows, num_tokens = len(case.arrays["position"]), len(case.arrays["qkv"])
    assert len(attended) == num_tokens
    return Outcome(
        attended=np.asarray(attended)[:num_rows],
        pages=np.asarray(cache.pages),
        scales=None if cache.scales is None else np.asarray(cache.scales),
        arrivals=np.asarray(arrivals),
    )


def arguments_of(arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays of a case as the operations take them, by name."""
    arguments = {name: None if array is None else jnp.asarray(array) for name, array in arrays.items()}
    cache = LayerCache(*(arguments.pop(name) for name in ("pages", "scales")))
    return arguments | {"cache": cache}
