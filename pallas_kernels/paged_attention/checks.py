"""What the entries to attention refuse: arrays that do not fit together, and numbers that mean nothing.

A shape that is wrong by one would on a GPU be read, written and counted in somebody else's memory, without a word; so
every axis of every array is held to the others, whatever the implementation.
"""

from numbers import Integral, Real

from jaxtyping import Array

from pallas_kernels.paged_attention.configs import Config
from pallas_kernels.paged_attention.layer_cache import LayerCache, check_scales

_FLOATS = ("float32", "bfloat16")
_INDEX = ("int32",)
_MAX_INT32 = 2**31 - 1
_MAX_FLOAT32 = 3.4028235e38


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
    _check_rank("q", q, "N Q H D")
    num_blocks, block_q, num_heads, head_dim = q.shape
    _check_heads(num_heads, head_dim, cache)
    _check("q", q, _FLOATS, N=num_blocks, Q=block_q, H=num_heads, D=head_dim)
    _check_rank("page_table", page_table, "R P")
    _check("page_table", page_table, _INDEX, R=page_table.shape[0], P=page_table.shape[1])
    _check("first_page", first_page, _INDEX, R=page_table.shape[0])
    for name, of_blocks in (("block_row", block_row), ("block_start", block_start), ("block_len", block_len)):
        _check(name, of_blocks, _INDEX, N=num_blocks)
    if into is not None:
        if len(into) < num_blocks * block_q:
            raise ValueError(f"into has {len(into)} tokens; it must have at least the {num_blocks * block_q} of q")
        _check("into", into, (q.dtype.name,), T=len(into), H=num_heads, D=head_dim)


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
    _check_rank("qkv", qkv, "T heads D")
    num_tokens, num_projections, head_dim = qkv.shape
    num_kv_heads = cache.pages.shape[3]
    _check_heads(num_projections - 2 * num_kv_heads, head_dim, cache)
    if head_dim % 2:
        raise ValueError(f"head_dim is {head_dim}; rotary embeddings need an even one")
    _check("qkv", qkv, _FLOATS, T=num_tokens, heads=num_projections, D=head_dim)
    _check_rank("position", position, "B")
    num_rows = len(position)
    for name, array in (("qkv", qkv), ("arrivals", arrivals)):
        if len(array) < num_rows:
            raise ValueError(f"there are {num_rows} decode rows, and {name} has {len(array)}")
    _check("position", position, _INDEX, B=num_rows)
    _check("arrivals", arrivals, _INDEX, rows=len(arrivals), K=num_kv_heads)
    _check_rank("page_table", page_table, "B P")
    _check("page_table", page_table, _INDEX, B=num_rows, P=page_table.shape[1])
    _check("first_page", first_page, _INDEX, B=num_rows)
    for name, angles in (("cos", cos), ("sin", sin)):
        _check(name, angles, _FLOATS, T=num_tokens, half_D=head_dim // 2)
    for name, weight in (("q_norm", q_norm), ("k_norm", k_norm)):
        if weight is not None:
            _check(name, weight, _FLOATS, D=head_dim)


def check_cache(cache: LayerCache) -> None:
    """Refuse a cache whose pages and scales do not fit each other.

    Raises:
        ValueError: they do not.
    """
    _check_rank("pages", cache.pages, "num_pages S 2 K D")
    num_pages, page_size, _, num_kv_heads, head_dim = cache.pages.shape
    axes = {"num_pages": num_pages, "S": page_size, "K_and_V": 2, "K": num_kv_heads}
    _check("pages", cache.pages, (*_FLOATS, "int8"), **axes, D=head_dim)
    check_scales(cache)
    if cache.scales is not None:
        _check("scales", cache.scales, ("float32",), **axes)


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


def check_factor(name: str, value: float, least: float = -_MAX_FLOAT32) -> float:
    """``value`` as a float, if it is a number that float32 has, and at least ``least``.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(value, Real) or not least <= value <= _MAX_FLOAT32:
        raise ValueError(f"{name} is {value!r}; it must be a number of Python in [{least:g}, {_MAX_FLOAT32:g}]")
    return float(value)


def _check(name: str, array: Array, dtypes: tuple[str, ...], **axes: int) -> None:
    """Refuse an array without exactly these axes and one of these dtypes."""
    if array.shape != tuple(axes.values()):
        expected = ", ".join(f"{axis} = {size}" for axis, size in axes.items())
        raise ValueError(f"{name} has the shape {list(array.shape)}; it must be [{expected}]")
    if array.dtype.name not in dtypes:
        raise ValueError(f"{name} is {array.dtype.name}; it must be {' or '.join(dtypes)}")


def _check_rank(name: str, array: Array, axes: str) -> None:
    """Refuse an array without so many axes, or with one that is empty."""
    if array.ndim != len(axes.split()) or 0 in array.shape:
        raise ValueError(f"{name} has the shape {list(array.shape)}; it must be [{axes}], none of them 0")


def _check_heads(num_heads: int, head_dim: int, cache: LayerCache) -> None:
    num_kv_heads = cache.pages.shape[3]
    if num_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(f"there are {num_heads} query heads; they must be a multiple of the cache's {num_kv_heads}")
    if head_dim != cache.pages.shape[4]:
        raise ValueError(f"the queries have head_dim {head_dim} and the cache {cache.pages.shape[4]}")
