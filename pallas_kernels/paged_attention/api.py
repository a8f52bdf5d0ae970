"""The entries to paged attention: they check what they are given and pick the implementation."""

import logging
from collections.abc import Callable
from functools import cache as once
from functools import partial
from typing import Literal, get_args

import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from pallas_kernels.device import Device, current_device
from pallas_kernels.paged_attention import xla
from pallas_kernels.paged_attention.configs import Config
from pallas_kernels.paged_attention.layer_cache import LayerCache
from pallas_kernels.paged_attention.pallas_gpu import launch

logger = logging.getLogger(__name__)

Implementation = Literal["xla", "pallas"]

_OLDEST_GPU = (8, 0)
"""Compute capability from which the kernel's products and asynchronous copies exist."""


def paged_attention(
    q: Float[Array, "N Q H D"],
    cache: LayerCache,
    page_table: Int32[Array, "R P"],
    first_page: Int32[Array, "R"],
    block_row: Int32[Array, "N"],
    block_start: Int32[Array, "N"],
    block_len: Int32[Array, "N"],
    *,
    window: int | None,
    scale: float,
    into: Float[Array, "T H D"] | None = None,
    implementation: Implementation | None = None,
    config: Config | None = None,
) -> Float[Array, "T H D"]:
    """Causal attention of blocks of queries over the keys and values that a paged cache holds.

    A block is ``Q`` neighbouring tokens of one request: 1 for decoding, 16 or 32 for pieces of prompts. Query i of
    block n stands at position ``block_start[n] + i`` and attends to the keys at positions
    ``max(0, position - window + 1) .. position`` (itself included, hence exactly ``window`` keys once there are as
    many), whose K and V must be in the cache already.

    Args:
        q: queries, rotary embedding applied; query head h reads kv head ``h // (H / K)``.
        cache: of one layer. What lies in slots that hold no token is never read into the result, NaN included.
        page_table: for each row the ids of its pages. Entry j holds the positions from
            ``(first_page[row] + j) * S``; entries past the last token are not read into the result.
        first_page: for each row how many pages of its sequence left the table at the front (0 without a window).
        block_row: for each block its row of ``page_table``.
        block_start: for each block the position of its first query.
        block_len: for each block how many queries it has, 0 to Q; the others are padding and give zeros.
        window: keys that a token attends to, or None for all.
        scale: factor of the scores, 1 / sqrt(D) as a rule.
        into: an array whose last N Q tokens are to be the result, in q's dtype; it is updated in place where it is not
            used after. A step has its decode rows before them. None: the result alone.
        implementation: ``xla`` runs anywhere; ``pallas`` is the GPU kernel, interpreted on a CPU (slowly, for tests);
            None takes the device's, see ``pick_implementation``.
        config: tile sizes of the GPU kernel; None takes those of the device.

    Returns:
        The attended values of the blocks' tokens in ``q``'s dtype, block after block (T = N Q), behind those that
        ``into`` has before them; scores and sums are float32 inside.

    Raises:
        ValueError: heads that do not divide, head_dim unlike the cache's, a window below 1, an unknown implementation,
            int8 pages without scales or scales without int8 pages, an ``into`` that is too short.
        NotImplementedError: ``implementation`` cannot take the shape.
    """
    _check(q.shape[2], q.shape[3], cache, window)
    if into is not None and (len(into) < q.shape[0] * q.shape[1] or into.dtype != q.dtype):
        raise ValueError(
            f"into has {len(into)} tokens of {into.dtype.name}; it must have at least the {q.shape[0] * q.shape[1]} "
            f"of the blocks, of {q.dtype.name}"
        )
    run: Callable[..., Array] = xla.paged_attention
    if pick_implementation(implementation, head_dim=q.shape[3]) == "pallas":
        run = partial(launch.paged_attention, config=config)
    return run(
        q, cache, page_table, first_page, block_row, block_start, block_len, window=window, scale=scale, into=into
    )


def decode_attention(
    qkv: Float[Array, "T heads D"],
    cache: LayerCache,
    arrivals: Int32[Array, "rows K"],
    page_table: Int32[Array, "B P"],
    first_page: Int32[Array, "B"],
    position: Int32[Array, "B"],
    cos: Float[Array, "T half_D"],
    sin: Float[Array, "T half_D"],
    *,
    q_norm: Float[Array, "D"] | None = None,
    k_norm: Float[Array, "D"] | None = None,
    norm_eps: float = 0.0,
    window: int | None,
    scale: float,
    implementation: Implementation | None = None,
    config: Config | None = None,
) -> tuple[Float[Array, "T H D"], LayerCache, Int32[Array, "rows K"]]:
    """Decode rows from their projections to attended values: norm, rotate, put K and V into the cache, attend.

    One operation, so that on a GPU it is one kernel.

    Args:
        qkv: H query heads, K key heads and K value heads of each token; the first B tokens are the decode rows, and
            the others are not read.
        cache: of one layer, with the earlier tokens of each row; to be donated, since it is updated in place.
        arrivals: zeros, for at least B rows: for each row and kv head how many shares of its keys a running kernel has
            done, so that the last one knows to merge them. Handed from layer to layer, so that nobody has to clear it.
        page_table, first_page: as of ``paged_attention``; row b's newest token has a page already.
        position: of each row's newest token, or -1 for a row that is padding: it gives zeros, and leaves alone every
            page but the dummy page 0.
        cos, sin: rotary angles of each token.
        q_norm, k_norm: weights of the RMS norm of each query and key head; None where the model has none.
        norm_eps: epsilon of that norm.
        window, scale, implementation, config: as of ``paged_attention``.

    Returns:
        The attended values in ``qkv``'s dtype, the cache with the newest tokens in it, and the zeros again. Of the
        values the first B tokens are the decode rows'; the others hold anything, for ``paged_attention`` to put a chunk
        ``into`` it. With int8 pages the newest token is attended to as the cache holds it, quantized, as a later reader
        sees it.

    Raises:
        ValueError: as ``paged_attention``; also fewer tokens, angles, rows of the page table or of arrivals than B.
        NotImplementedError: ``implementation`` cannot take the shape.
    """
    num_rows, num_kv_heads = len(position), cache.pages.shape[3]
    _check(qkv.shape[1] - 2 * num_kv_heads, qkv.shape[2], cache, window)
    counts = {
        "qkv": len(qkv),
        "arrivals": len(arrivals),
        "page_table": len(page_table),
        "first_page": len(first_page),
        "cos": len(cos),
        "sin": len(sin),
    }
    if too_short := [f"{name} has {count}" for name, count in counts.items() if count < num_rows]:
        raise ValueError(f"there are {num_rows} decode rows, and {', '.join(too_short)}")
    run: Callable[..., tuple[Array, LayerCache, Array]] = xla.decode_attention
    if pick_implementation(implementation, head_dim=qkv.shape[2]) == "pallas":
        run = partial(launch.decode_attention, config=config)
    return run(
        qkv,
        cache,
        arrivals,
        page_table,
        first_page,
        position,
        cos,
        sin,
        q_norm=q_norm,
        k_norm=k_norm,
        norm_eps=norm_eps,
        window=window,
        scale=scale,
    )


def pick_implementation(asked: Implementation | None, *, head_dim: int) -> Implementation:
    """The implementation that runs: the one asked for; or on a GPU that it supports the kernel, and ``xla`` elsewhere.

    What None stands for on a GPU is said once in the log.

    Raises:
        ValueError: there is no such implementation.
        NotImplementedError: the kernel was asked for, and does not take this head_dim or this GPU.
    """
    if asked is not None and asked not in get_args(Implementation):
        raise ValueError(f"implementation is {asked!r}; known are {', '.join(get_args(Implementation))}")
    if asked == "pallas" and (reason := _why_no_kernel(current_device(), head_dim)):
        raise NotImplementedError(reason)
    return asked or _pick_for(current_device(), head_dim)


@once
def _pick_for(device: Device, head_dim: int) -> Implementation:
    if not device.is_gpu:
        return "xla"
    if reason := _why_no_kernel(device, head_dim):
        logger.warning("attention on %s: the portable implementation, since %s", device.kind, reason)
        return "xla"
    logger.info("attention on %s: the GPU kernel", device.kind)
    return "pallas"


def _why_no_kernel(device: Device, head_dim: int) -> str | None:
    if device.compute_capability is not None and device.compute_capability < _OLDEST_GPU:
        oldest, own = (".".join(map(str, capability)) for capability in (_OLDEST_GPU, device.compute_capability))
        return f"the kernel needs compute capability {oldest}, and this GPU has {own}"
    if head_dim > launch.MAX_HEAD_DIM:
        return f"the kernel takes a head_dim of at most {launch.MAX_HEAD_DIM}, and this is {head_dim}"
    return None


def _check(num_heads: int, head_dim: int, cache: LayerCache, window: int | None) -> None:
    num_kv_heads = cache.pages.shape[3]
    if num_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(f"there are {num_heads} query heads and the cache has {num_kv_heads}; they must divide")
    if head_dim != cache.pages.shape[4]:
        raise ValueError(f"the queries have head_dim {head_dim} and the cache {cache.pages.shape[4]}")
    if (cache.pages.dtype == jnp.int8) != (cache.scales is not None):
        raise ValueError(f"pages are {cache.pages.dtype.name}; int8 pages need scales, and others take none")
    if window is not None and window < 1:
        raise ValueError(f"window is {window}; it must be at least 1, or None for no window")
