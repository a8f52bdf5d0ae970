"""What the entries to attention refuse: arrays that do not fit together, and numbers that mean nothing."""

from numbers import Integral

from jaxtyping import Array

from pallas_kernels.arrays import FLOATS, INDEX, check_array, check_rank
from pallas_kernels.paged_attention.configs import Config
from pallas_kernels.paged_attention.layer_cache import LayerCache, check_scales

_MAX_INT32 = 2**31 - 1


def check_blocks(
    q: Array,
    cache: LayerCache,
    page_table: Array,
    first_page: Array,
    block_row: Array,
    block_start: Array,
    block_len: Array,
    into: Array | None,
) -> None:
    """Refuse arrays of ``paged_attention`` that do not fit together.

    Raises:
        ValueError: some do not.
    """
    check_cache(cache)
    check_rank("q", q, "N Q H D")
    num_blocks, block_q, num_heads, head_dim = q.shape
    _check_heads(num_heads, head_dim, cache)
    check_array("q", q, FLOATS, N=num_blocks, Q=block_q, H=num_heads, D=head_dim)
    check_rank("page_table", page_table, "R P")
    check_array("page_table", page_table, INDEX, R=page_table.shape[0], P=page_table.shape[1])
    check_array("first_page", first_page, INDEX, R=page_table.shape[0])
    for name, of_blocks in (("block_row", block_row), ("block_start", block_start), ("block_len", block_len)):
        check_array(name, of_blocks, INDEX, N=num_blocks)
    if into is not None:
        if len(into) < num_blocks * block_q:
            raise ValueError(f"into has {len(into)} tokens; it must have at least the {num_blocks * block_q} of q")
        check_array("into", into, (q.dtype.name,), T=len(into), H=num_heads, D=head_dim)


def check_decode_rows(
    qkv: Array,
    cache: LayerCache,
    arrivals: Array,
    page_table: Array,
    first_page: Array,
    position: Array,
    cos: Array,
    sin: Array,
    q_norm: Array | None,
    k_norm: Array | None,
) -> None:
    """Refuse arrays of ``decode_attention`` that do not fit together.

    Raises:
        ValueError: some do not.
    """
    check_cache(cache)
    check_rank("qkv", qkv, "T heads D")
    num_tokens, num_projections, head_dim = qkv.shape
    num_kv_heads = cache.pages.shape[3]
    _check_heads(num_projections - 2 * num_kv_heads, head_dim, cache)
    if head_dim % 2:
        raise ValueError(f"head_dim is {head_dim}; rotary embeddings need an even one")
    check_array("qkv", qkv, FLOATS, T=num_tokens, heads=num_projections, D=head_dim)
    check_rank("position", position, "B")
    num_rows = len(position)
    for name, array in (("qkv", qkv), ("arrivals", arrivals)):
        if len(array) < num_rows:
            raise ValueError(f"there are {num_rows} decode rows, and {name} has {len(array)}")
    check_array("position", position, INDEX, B=num_rows)
    check_array("arrivals", arrivals, INDEX, rows=len(arrivals), K=num_kv_heads)
    check_rank("page_table", page_table, "B P")
    check_array("page_table", page_table, INDEX, B=num_rows, P=page_table.shape[1])
    check_array("first_page", first_page, INDEX, B=num_rows)
    for name, angles in (("cos", cos), ("sin", sin)):
        check_array(name, angles, FLOATS, T=num_tokens, half_D=head_dim // 2)
    for name, weight in (("q_norm", q_norm), ("k_norm", k_norm)):
        if weight is not None:
            check_array(name, weight, FLOATS, D=head_dim)


def check_cache(cache: LayerCache) -> None:
    """Refuse a cache whose pages and scales do not fit each other.

    Raises:
        ValueError: they do not.
    """
    check_rank("pages", cache.pages, "num_pages S 2 K D")
    num_pages, page_size, _, num_kv_heads, head_dim = cache.pages.shape
    axes = {"num_pages": num_pages, "S": page_size, "K_and_V": 2, "K": num_kv_heads}
    check_array("pages", cache.pages, (*FLOATS, "int8"), **axes, D=head_dim)
    check_scales(cache)
    if cache.scales is not None:
        check_array("scales", cache.scales, ("float32",), **axes)


def check_window(window: int | None) -> None:
    """Refuse a window that is no number of keys.

    Raises:
        ValueError: it is none.
    """
    is_whole = isinstance(window, Integral) and not isinstance(window, bool)
    if window is not None and not (is_whole and 1 <= window <= _MAX_INT32):
        raise ValueError(f"window is {window!r}; it must be a whole number in [1, {_MAX_INT32}], or None for no window")


def check_config(config: Config | None) -> None:
    """Refuse tile sizes that are none.

    Raises:
        ValueError: it is no ``Config``.
    """
    if config is not None and not isinstance(config, Config):
        raise ValueError(f"config is {config!r}; it must be a Config, or None")


def _check_heads(num_heads: int, head_dim: int, cache: LayerCache) -> None:
    num_kv_heads = cache.pages.shape[3]
    if num_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(f"there are {num_heads} query heads; they must be a multiple of the cache's {num_kv_heads}")
    if head_dim != cache.pages.shape[4]:
        raise ValueError(f"the queries have head_dim {head_dim} and the cache {cache.pages.shape[4]}")
