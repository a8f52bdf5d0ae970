"""Rotary position embedding of heads, the portable version."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def rotate(
    x: Float[Array, "T heads D"], cos: Float[Array, "T half_D"], sin: Float[Array, "T half_D"]
) -> Float[Array, "T heads D"]:
    """Turn each pair (i, i + D / 2) of every head by its token's angle, in float32 (Su et al., RoFormer, 2021)."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)
