"""The paged KV cache on the device, donated to every step and updated in place.

One ``LayerCache`` per layer, with pages ``[1 + num_pages, page_size, 2, K, D]``; the layers of one cache group, those
with the same window, have equally many and are read through one page table. Page 0 is the dummy page: padding
writes there and nothing reads it. One array for all layers would be copied as a whole on every step (seen on CPU), one
per layer is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32

from jaxinfer.config import ModelConfig
from pallas_kernels.paged_attention import LayerCache

_SCALE_BYTES = 4
"""A scale of an int8 head is a float32."""


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


def allocate(
    config: ModelConfig, *, num_pages: Sequence[int], page_size: int, max_num_seqs: int, dtype: jnp.dtype
) -> KVCache:
    """An empty cache: zeros, for ``jnp.empty`` may hold anything.

    Args:
        config: the model's shape.
        num_pages: of the layers of each cache group; the dummy page comes on top.
        page_size: tokens of a page.
        max_num_seqs: the largest number of decode rows of a step.
        dtype: of the pages; with int8 each K and V of a token and kv head has a float32 scale.

    Raises:
        ValueError: the device has no room for it.
    """
    try:
        layers = tuple(
            _layer(config, 1 + num_pages[group], page_size, jnp.dtype(dtype)) for group in config.layer_groups
        )
    except (jax.errors.JaxRuntimeError, OverflowError) as error:
        num_bytes = sum(1 + num_pages[group] for group in config.layer_groups) * page_size
        num_bytes *= layer_bytes_per_token(config, dtype)
        raise ValueError(
            f"num_kv_pages is {num_pages[0]}: the device has no room for {num_bytes} bytes of KV cache"
        ) from error
    return KVCache(layers, arrivals=jnp.zeros((max_num_seqs, config.num_kv_heads), jnp.int32))


def _layer(config: ModelConfig, num_pages: int, page_size: int, dtype: jnp.dtype) -> LayerCache:
    heads = (num_pages, page_size, 2, config.num_kv_heads)
    scales = jnp.zeros(heads, jnp.float32) if dtype == jnp.int8 else None
    return LayerCache(pages=jnp.zeros((*heads, config.head_dim), dtype), scales=scales)


def layer_bytes_per_token(config: ModelConfig, dtype: jnp.dtype) -> int:
    """Bytes that one token takes in a layer: K and V, and their scales if they are int8."""
    dtype = jnp.dtype(dtype)
    scale_bytes = _SCALE_BYTES if dtype == jnp.int8 else 0
    return 2 * config.num_kv_heads * (config.head_dim * dtype.itemsize + scale_bytes)


def bytes_per_token(config: ModelConfig, dtype: jnp.dtype) -> int:
    """Bytes that one token takes in all layers, as long as no window has passed it."""
    return config.num_layers * layer_bytes_per_token(config, dtype)
