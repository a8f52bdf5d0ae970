"""Random sequences, and a paged cache that holds them, both on the device.

The keys and values of a sequence lie in a row as well: attention by its definition reads those, and so rests on none of
the tables that the kernels follow.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int32

from pallas_kernels.paged_attention import LayerCache
from pallas_kernels.paged_attention.layer_cache import quantize

PAGE_SIZE = 16


@partial(jax.tree_util.register_dataclass, data_fields=["kv", "cache", "page_table", "first_page"], meta_fields=[])
@dataclass(frozen=True)
class Sequences:
    """R sequences of at most L tokens.

    Attributes:
        kv: keys and values of each token, rounded to what the cache holds.
        cache: the same tokens in shuffled pages; every slot without one is NaN, or has the scale NaN.
        page_table, first_page: the way to them.
    """

    kv: Float32[Array, "R L 2 K D"]
    cache: LayerCache
    page_table: Int32[Array, "R P"]
    first_page: Int32[Array, "R"]


def paged(
    key: Array, kv: Float[Array, "R L 2 K D"], held: Bool[Array, "R L"], first_page: Int32[Array, "R"], dtype: Any
) -> Sequences:
    """The sequences in pages of the dtype, of which page 0 is nobody's.

    Args:
        key: shuffles the pages.
        kv: keys and values.
        held: which tokens the cache holds.
        first_page: pages that left the front of each row's table; what they held is not in the cache either.
        dtype: float32, bfloat16 or int8, of the pages.
    """
    num_rows, length, _, num_kv_heads, head_dim = kv.shape
    width = -(-length // PAGE_SIZE)
    drawn = jax.random.bits(key, (num_rows * width,))  # their order is a shuffle that compiles fast
    page_table = 1 + jnp.argsort(drawn).astype(jnp.int32).reshape(num_rows, width)
    position = jnp.broadcast_to(jnp.arange(length), held.shape)
    entry = position // PAGE_SIZE - first_page[:, None]
    num_pages = 1 + num_rows * width
    page = jnp.where(held & (entry >= 0), jnp.take_along_axis(page_table, jnp.maximum(entry, 0), axis=1), num_pages)
    place = (page, position % PAGE_SIZE)  # a page that does not exist: the token is dropped
    slots = (num_pages, PAGE_SIZE, 2, num_kv_heads)
    if dtype == jnp.int8:
        values, scales = quantize(kv)
        held_scales = jnp.full(slots, jnp.nan, jnp.float32).at[place].set(scales, mode="drop")
        pages = jnp.full((*slots, head_dim), 99, jnp.int8).at[place].set(values, mode="drop")
        rounded = values.astype(jnp.float32) * scales[..., None]
        return Sequences(rounded, LayerCache(pages, held_scales), page_table, first_page)
    values = jax.lax.optimization_barrier(kv.astype(dtype))
    pages = jnp.full((*slots, head_dim), jnp.nan, dtype).at[place].set(values, mode="drop")
    return Sequences(values.astype(jnp.float32), LayerCache(pages, None), page_table, first_page)


def attended(
    q: Float[Array, "N Q H D"],
    kv: Float32[Array, "N L 2 K D"],
    position: Int32[Array, "N Q"],
    *,
    window: int | None,
    scale: float,
) -> Float32[Array, "N Q H D"]:
    """Attention of queries at ``position`` (-1: padding, which gives zeros) by its definition, in float32."""
    rows = q.astype(jnp.float32).reshape(*q.shape[:2], kv.shape[3], -1, q.shape[3])
    product = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
    key_position = jnp.arange(kv.shape[1])
    seen = key_position <= position[..., None]
    if window is not None:
        seen &= key_position > position[..., None] - window
    scores = scale * product("nqkgd,nlkd->nqkgl", rows, kv[:, :, 0])
    weights = jax.nn.softmax(jnp.where(seen[:, :, None, None], scores, -jnp.inf), axis=-1)
    result = product("nqkgl,nlkd->nqkgd", jnp.where(seen[:, :, None, None], weights, 0), kv[:, :, 1])
    return jnp.where(position[..., None, None] >= 0, result.reshape(q.shape), 0)


def head_error(result: Float[Array, "*heads D"], expected: Float[Array, "*heads D"]) -> Float32[Array, ""]:
    """The largest distance of a head from what it should be, over its norm, or a quarter of the mean norm if that is
    more: of a few numbers a head may come near zero. Where NaN is expected, only NaN is right; where zeros are, zeros.
    """
    values, truth = result.astype(jnp.float32), expected.astype(jnp.float32)
    difference = jnp.where(jnp.isnan(values) & jnp.isnan(truth), 0, values - truth)
    distance, norm = (jnp.sqrt(jnp.sum(x * x, axis=-1)) for x in (difference, jnp.nan_to_num(truth)))
    count = jnp.maximum(jnp.sum(norm > 0), 1)
    least = jnp.sum(norm) / count / 4
    error = jnp.max(jnp.where(distance == 0, 0, distance / jnp.where(norm > 0, jnp.maximum(norm, least), 0)))
    return jnp.where(jnp.isnan(error), jnp.inf, error)
