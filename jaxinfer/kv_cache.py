"""The paged KV cache on the device: where a token's keys and values lie and how they get there.

One array per layer, ``[1 + num_pages, page_size, 2, K, D]``, K and V of a token side by side, so that a step writes
both in one scatter and donates one array. Page 0 is the dummy page: padding writes there and nothing reads it. One
array for all layers would be copied as a whole on every step (seen on CPU), one per layer is updated in place.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from jaxinfer.config import ModelConfig

type KVCache = tuple[jax.Array, ...]
"""For each layer its pages ``[1 + num_pages, page_size, 2, K, D]``; donated to every step."""


def layer_shape(config: ModelConfig, *, num_pages: int, page_size: int) -> tuple[int, int, int, int, int]:
    """Shape of one layer's pages, the dummy page included."""
    return (1 + num_pages, page_size, 2, config.num_kv_heads, config.head_dim)


def allocate(config: ModelConfig, *, num_pages: int, page_size: int, dtype: jnp.dtype) -> KVCache:
    """An empty cache with room for ``num_pages * page_size`` tokens: zeros, for ``jnp.empty`` may hold anything.

    Raises:
        ValueError: the device has no room for it.
    """
    shape = layer_shape(config, num_pages=num_pages, page_size=page_size)
    try:
        return tuple(jnp.zeros(shape, dtype) for _ in range(config.num_layers))
    except (jax.errors.JaxRuntimeError, OverflowError) as error:
        num_bytes = shape[0] * page_size * bytes_per_token(config, dtype)
        raise ValueError(
            f"num_kv_pages is {num_pages}: the device has no room for {num_bytes} bytes of KV cache"
        ) from error


def bytes_per_token(config: ModelConfig, dtype: jnp.dtype) -> int:
    """Bytes that one token takes in all layers."""
    return config.kv_elements_per_token * jnp.dtype(dtype).itemsize


def write(
    kv_pages: Float[Array, "num_pages S 2 K D"],
    k: Float[Array, "T K D"],
    v: Float[Array, "T K D"],
    page: Int32[Array, "T"],
    offset: Int32[Array, "T"],
) -> Float[Array, "num_pages S 2 K D"]:
    """The pages with each token's K and V written to its page and offset."""
    kv = jnp.stack([k, v], axis=1).astype(kv_pages.dtype)
    return kv_pages.at[page, offset].set(kv, mode="promise_in_bounds")
