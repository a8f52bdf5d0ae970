"""The entries to paged attention: they check what they are given and hand it to the implementation."""

from collections.abc import Callable
from functools import partial

from jaxtyping import Array, Float, Int32

from pallas_kernels.arrays import check_factor
from pallas_kernels.paged_attention import xla
from pallas_kernels.paged_attention.checks import check_blocks, check_config, check_decode_rows, check_window
from pallas_kernels.paged_attention.configs import Config
from pallas_kernels.paged_attention.implementation import Implementation, pick_implementation
from pallas_kernels.paged_attention.layer_cache import LayerCache
from pallas_kernels.paged_attention.pallas_gpu import launch


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
    """Causal attention of blocks of queries over the keys and values that a paged cache holds. It has no gradient.

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
        block_len: for each block how many queries it has, 0 to Q; the others are padding and give zeros. These values
            and those of the tables are not checked: positions must lie within their row's pages.
        window: keys that a token attends to, or None for all.
        scale: factor of the scores, 1 / sqrt(D) as a rule.
        into: an array whose last N Q tokens are to be the result, in q's dtype; it is updated in place where it is not
            used after. A step has its decode rows before them. None: the result alone.
        implementation: ``xla`` runs anywhere; ``pallas`` is the GPU kernel, interpreted on a CPU (slowly, for tests);
            None takes the device's, see ``pick_implementation``.
        config: tile sizes of the GPU kernel, which ``xla`` does not use; None takes those of the device. Tiles that ask
            for more shared memory than a GPU has fail when the program is compiled for it.

    Returns:
        The attended values of the blocks' tokens in ``q``'s dtype, block after block (T = N Q), behind those that
        ``into`` has before them; scores and sums are float32 inside.

    Raises:
        ValueError: arrays whose shapes or dtypes do not fit each other, heads that do not divide, int8 pages without
            scales or scales without int8 pages, a window below 1, a scale that is no number, an unknown implementation.
        NotImplementedError: ``implementation`` cannot take the shape.
    """
    check_blocks(q, cache, page_table, first_page, block_row, block_start, block_len, into)
    check_window(window)
    check_config(config)
    scale = check_factor("scale", scale)
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
        cos, sin: cosine and sine of each token's angles; angle i turns the numbers i and i + D / 2 of a head.
        q_norm, k_norm: weights of the RMS norm of each query and key head; None where the model has none.
        norm_eps: epsilon of that norm.
        window, scale, implementation, config: as of ``paged_attention``.

    Returns:
        The attended values in ``qkv``'s dtype, the cache with the newest tokens in it, and the zeros again. Of the
        values the first B tokens are the decode rows'; the others hold anything, for ``paged_attention`` to put a chunk
        ``into`` it. With int8 pages the newest token is attended to as the cache holds it, quantized, as a later reader
        sees it.

    Raises:
        ValueError: as ``paged_attention``; also an odd head_dim, and fewer tokens or counters than rows.
        NotImplementedError: ``implementation`` cannot take the shape.
    """
    check_decode_rows(qkv, cache, arrivals, page_table, first_page, position, cos, sin, q_norm, k_norm)
    check_window(window)
    check_config(config)
    scale, norm_eps = check_factor("scale", scale), check_factor("norm_eps", norm_eps, least=0)
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
