"""Launches of the GPU kernel: what each array is for, what is written in place, and how many programs run."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float, Int32

from pallas_kernels.device import current_device
from pallas_kernels.paged_attention.configs import Config, Problem, find_config
from pallas_kernels.paged_attention.layer_cache import LayerCache
from pallas_kernels.paged_attention.pallas_gpu.attend import attend
from pallas_kernels.paged_attention.pallas_gpu.merge import merge
from pallas_kernels.paged_attention.pallas_gpu.operands import (
    Blocks,
    Geometry,
    Inputs,
    MergeInputs,
    MergeOutputs,
    NewTokens,
    Outputs,
    Partials,
)

_MAX_INT32 = 2**31 - 1
_WIDE_OFFSETS_FROM = 2**32
"""Bytes; jax 0.11.2 and 0.12.0.1, ``_compute_offsets_from_indices`` of the Triton lowering."""


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
    into: Float[Array, "T H D"] | None,
    config: Config | None,
) -> Float[Array, "T H D"]:
    """See ``api.paged_attention``, which checks the arguments."""
    num_blocks, block_q = q.shape[:2]
    num_before = 0 if into is None else len(into) - num_blocks * block_q
    geometry = _geometry(q.shape, q.dtype, cache, window=window, scale=scale, config=config, num_before=num_before)
    arrivals = None
    if _counts_shares(geometry.config):
        arrivals = jnp.zeros((num_blocks * geometry.tiles_per_block, geometry.num_kv_heads), jnp.int32)
    blocks = Blocks(first_page, block_start, block_row, block_len)
    inputs = Inputs(q, blocks, page_table, cache.pages, cache.scales, arrivals, into)
    shape = (num_before + num_blocks * block_q, *q.shape[2:])
    return _launch(inputs, jax.ShapeDtypeStruct(shape, q.dtype), geometry, num_blocks, appends=False)[0]


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
    q_norm: Float[Array, "D"] | None,
    k_norm: Float[Array, "D"] | None,
    norm_eps: float,
    window: int | None,
    scale: float,
    config: Config | None,
) -> tuple[Float[Array, "T H D"], LayerCache, Int32[Array, "rows K"]]:
    """See ``api.decode_attention``, which checks the arguments.

    Raises:
        NotImplementedError: the group does not fit one tile of rows, or the pages are of a size it cannot address.
    """
    num_tokens, num_heads, head_dim = len(qkv), qkv.shape[1] - 2 * cache.pages.shape[3], qkv.shape[2]
    q_shape = (len(position), 1, num_heads, head_dim)
    geometry = _geometry(q_shape, qkv.dtype, cache, window=window, scale=scale, config=config, norm_eps=norm_eps)
    if geometry.tiles_per_block > 1:
        raise NotImplementedError(
            f"block_rows is {geometry.config.block_rows} and {geometry.group} query heads share a kv head; "
            "decode rows need them in one tile"
        )
    counting = _counts_shares(geometry.config)
    inputs = Inputs(
        NewTokens(qkv, cos, sin, q_norm, k_norm),
        Blocks(first_page, position, None, None),
        page_table,
        cache.pages,
        cache.scales,
        arrivals if counting else None,
        None,
    )
    shape = jax.ShapeDtypeStruct((num_tokens, num_heads, head_dim), qkv.dtype)
    attended, outputs = _launch(inputs, shape, geometry, len(position), appends=True)
    return attended, LayerCache(outputs.pages, outputs.scales), outputs.arrivals if counting else arrivals


def _geometry(
    q_shape: tuple[int, ...],
    dtype: jnp.dtype,
    cache: LayerCache,
    *,
    window: int | None,
    scale: float,
    config: Config | None,
    norm_eps: float = 0.0,
    num_before: int = 0,
) -> Geometry:
    num_blocks, block_q, num_heads, head_dim = q_shape
    page_size, _, num_kv_heads, _ = cache.pages.shape[1:]
    _check_offsets(cache.pages)
    device = current_device()
    if config is None:
        problem = Problem(
            num_blocks=num_blocks,
            block_q=block_q,
            num_kv_heads=num_kv_heads,
            group=num_heads // num_kv_heads,
            head_dim=head_dim,
            dtype=dtype.name,
            kv_dtype=cache.pages.dtype.name,
        )
        config = find_config(problem, device)
    return Geometry(
        block_q=block_q,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        page_size=page_size,
        window=window,
        scale=scale,
        norm_eps=norm_eps,
        num_before=num_before,
        config=config,
        interpret=not device.is_gpu,
    )


def _check_offsets(pages: Array) -> None:
    """Refuse pages whose places would not fit the compiler's offsets.

    It counts elements in signed 32 bits, and takes 64 for arrays over 4 GiB: right for every type of two bytes or more.
    """
    num_bytes = pages.size * pages.dtype.itemsize
    if pages.size > _MAX_INT32 and num_bytes <= _WIDE_OFFSETS_FROM:
        raise NotImplementedError(
            f"a layer's {pages.dtype.name} pages have {num_bytes} bytes; the GPU kernel takes at most {_MAX_INT32}, or "
            f"more than {_WIDE_OFFSETS_FROM}"
        )


def _counts_shares(config: Config) -> bool:
    return config.num_splits > 1 and config.combine == "last_split"


def _launch(
    inputs: Inputs, attended: jax.ShapeDtypeStruct, geometry: Geometry, num_blocks: int, *, appends: bool
) -> tuple[Array, Outputs]:
    """Run the kernel, and a second one if that is to merge; returns what was attended, and what else was written."""
    config = geometry.config
    tiles = (num_blocks * geometry.tiles_per_block, geometry.num_kv_heads)
    merges_apart = config.num_splits > 1 and config.combine == "second_kernel"
    shapes = Outputs(
        attended=None if merges_apart else attended,
        partials=_partials((*tiles, config.num_splits), geometry) if config.num_splits > 1 else None,
        pages=inputs.pages if appends else None,
        scales=inputs.scales if appends else None,
        arrivals=inputs.arrivals,
    )
    outputs: Outputs = _call(attend, (*tiles, config.num_splits), geometry, inputs, shapes)
    if not merges_apart:
        return outputs.attended, outputs
    shares = MergeInputs(inputs.blocks, outputs.partials, inputs.attended)
    merged: MergeOutputs = _call(merge, (*tiles, 1), geometry, shares, MergeOutputs(attended))
    return merged.attended, outputs


def _partials(shares: tuple[int, int, int], geometry: Geometry) -> Partials:
    rows = min(geometry.config.block_rows, geometry.block_q * geometry.group)
    stat = jax.ShapeDtypeStruct((*shares, rows), jnp.float32)
    return Partials(jax.ShapeDtypeStruct((*shares, rows, geometry.head_dim), jnp.float32), stat, stat)


def _call(body: Callable[..., None], grid: tuple[int, int, int], geometry: Geometry, inputs: Any, shapes: Any) -> Any:
    config = geometry.config
    return pl.pallas_call(
        functools.partial(body, geometry=geometry),
        grid=grid,
        out_shape=jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), shapes),
        input_output_aliases=_aliases(inputs, shapes),
        interpret=geometry.interpret,
        compiler_params=plgpu.CompilerParams(num_warps=config.num_warps, num_stages=config.num_stages),
    )(inputs)


def _aliases(inputs: Any, outputs: Any) -> dict[int, int]:
    """For each array that both have its index among the inputs and among the outputs."""
    paths = [[path for path, _ in jax.tree_util.tree_leaves_with_path(tree)] for tree in (inputs, outputs)]
    return {paths[0].index(path): place for place, path in enumerate(paths[1]) if path in paths[0]}
