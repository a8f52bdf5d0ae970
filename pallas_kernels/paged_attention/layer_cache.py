"""One layer's part of a paged KV cache, as every implementation of attention reads and writes it.

K and V of a token lie side by side, so that a step writes both in one scatter and donates one array. With INT8 pages a
second, small array holds a scale for each K and each V of a token and kv head.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int8, Int32

_INT8_MAX = 127
"""The range is symmetric: -128 is not used."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LayerCache:
    """The pages of one layer. Page 0 is the dummy page: it belongs to no request, and padding may write to it.

    Attributes:
        pages: K at index 0 and V at index 1 of the third axis; float, or int8 with ``scales``.
        scales: what the numbers of an int8 head are to be multiplied by; None with float pages.
    """

    pages: Float[Array, "num_pages S 2 K D"] | Int8[Array, "num_pages S 2 K D"]
    scales: Float[Array, "num_pages S 2 K"] | None


def check_scales(cache: LayerCache) -> None:
    """Refuse int8 pages without scales, and scales without int8 pages.

    Raises:
        ValueError: it is one of these.
    """
    if (cache.pages.dtype == jnp.int8) != (cache.scales is not None):
        raise ValueError(f"pages are {cache.pages.dtype.name}; int8 pages need scales, and others take none")


def quantize(x: Float[Array, "*heads D"]) -> tuple[Int8[Array, "*heads D"], Float[Array, "*heads"]]:
    """Each head as int8 and its float32 scale, ``max(|x|) / 127``: symmetric, rounded to nearest.

    A head of zeros has the scale 0. Also runs inside GPU kernels, whose dialect has no ``round``.
    """
    x = x.astype(jnp.float32)
    scale = jnp.max(jnp.abs(x), axis=-1) / _INT8_MAX
    # Each number by itself, since XLA makes a kernel of its own of what is done to the scales alone.
    steps = jnp.where(scale[..., None] > 0, x / scale[..., None], 0)
    return jnp.floor(steps + 0.5).astype(jnp.int8), scale


def write(
    cache: LayerCache,
    k: Float[Array, "T K D"],
    v: Float[Array, "T K D"],
    page: Int32[Array, "T"],
    offset: Int32[Array, "T"],
) -> LayerCache:
    """The cache with each token's K and V at its page and offset, both of which must exist.

    Raises:
        ValueError: pages and scales do not fit each other.
    """
    check_scales(cache)
    kv = jnp.stack([k, v], axis=1)
    scales = cache.scales
    if scales is not None:
        kv, kv_scales = quantize(kv)
        scales = scales.at[page, offset].set(kv_scales.astype(scales.dtype), mode="promise_in_bounds")
    pages = cache.pages.at[page, offset].set(kv.astype(cache.pages.dtype), mode="promise_in_bounds")
    return LayerCache(pages, scales)
