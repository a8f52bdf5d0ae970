"""The paged KV cache on the device, donated to every step and updated in place.

One ``LayerCache`` per layer, with pages ``[1 + num_pages, page_size, 2, K, D]``. Page 0 is the dummy page: padding
writes there and nothing reads it. One array for all layers would be copied as a whole on every step (seen on CPU), one
per layer is not.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32

from jaxinfer.config import ModelConfig
from pallas_kernels.paged_attention import LayerCache


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KVCache:
    """What a step reads and updates besides the tokens.

    Attributes:
        layers: for each layer its pages.
        arrivals: counters that the attention of each layer uses and leaves zero for the next, as ``decode_attention``.
    """

    layers: tuple[LayerCache, ...]
    arrivals: Int32[Array, "max_num_seqs K"]


def allocate(config: ModelConfig, *, num_pages: int, page_size: int, max_num_seqs: int, dtype: jnp.dtype) -> KVCache:
    """An empty cache with room for ``num_pages * page_size`` tokens: zeros, for ``jnp.empty`` may hold anything.

    Args:
        config: the model's shape.
        num_pages, page_size: of every layer; the dummy page comes on top.
        max_num_seqs: the largest number of decode rows of a step.
        dtype: of the pages.

    Raises:
        ValueError: the device has no room for it.
    """
    shape = (1 + num_pages, page_size, 2, config.num_kv_heads, config.head_dim)
    try:
        layers = tuple(LayerCache(pages=jnp.zeros(shape, dtype), scales=None) for _ in range(config.num_layers))
    except (jax.errors.JaxRuntimeError, OverflowError) as error:
        num_bytes = shape[0] * page_size * bytes_per_token(config, dtype)
        raise ValueError(
            f"num_kv_pages is {num_pages}: the device has no room for {num_bytes} bytes of KV cache"
        ) from error
    return KVCache(layers, arrivals=jnp.zeros((max_num_seqs, config.num_kv_heads), jnp.int32))


def bytes_per_token(config: ModelConfig, dtype: jnp.dtype) -> int:
    """Bytes that one token takes in all layers."""
    return config.kv_elements_per_token * jnp.dtype(dtype).itemsize
