"""Root-mean-square norm, the portable version."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def rms_norm(x: Float[Array, "*rows E"], weight: Float[Array, "E"], eps: float) -> Float[Array, "*rows E"]:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, computed in float32 (Zhang and Sennrich, 2019)."""
    x32 = x.astype(jnp.float32)
    normed = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + eps)
    return (normed * weight.astype(jnp.float32)).astype(x.dtype)
