"""What the entries to attention refuse: arrays that do not fit together, and numbers that mean nothing.

A shape that is wrong by one would on a GPU be read, written and counted in somebody else's memory, without a word; so
every axis of every array is held to the others, whatever the implementation.
"""

from numbers import Integral, Real

from jaxtyping import Array

from pallas_kernels.paged_attention.configs import Config
from pallas_kernels.paged_attention.layer_cache import LayerCache, check_scales

_FLOATS = ("float32", "bfloat16")
_MAX_INT32 = 2**31 - 1
_MAX_FLOAT32 = 3.4028235e38


def check_array(name: str, array: Array, dtypes: tuple[str, ...], **axes: int) -> None:
    """Refuse an array of another shape or dtype.

    Args:
        name: what the caller calls it.
        array: is to have these axes, in this order.
        dtypes: those that are allowed.
        axes: name and size of each.

    Raises:
        ValueError: it has others.
    """
    if array.shape != tuple(axes.values()):
        expected = ", ".join(f"{axis} = {size}" for axis, size in axes.items())
        raise ValueError(f"{name} has the shape {list(array.shape)}; it must be [{expected}]")
    if array.dtype.name not in dtypes:
        raise ValueError(f"{name} is {array.dtype.name}; it must be {' or '.join(dtypes)}")


def check_indices(name: str, array: Array, **axes: int) -> None:
    """Refuse an array of another shape or of anything but int32; as ``check_array``."""
    check_array(name, array, ("int32",), **axes)


def check_floats(name: str, array: Array, **axes: int) -> None:
    """Refuse an array of another shape or of anything but float32 and bfloat16; as ``check_array``."""
    check_array(name, array, _FLOATS, **axes)


def check_rank(name: str, array: Array, axes: str) -> None:
    """Refuse an array without exactly these axes, or with one that is empty.

    Raises:
        ValueError: it has others.
    """
    if array.ndim != len(axes.split()) or 0 in array.shape:
        raise ValueError(f"{name} has the shape {list(array.shape)}; it must be [{axes}], none of them 0")


def check_cache(cache: LayerCache) -> None:
    """Refuse a cache whose pages and scales do not fit each other.

    Raises:
        ValueError: they do not.
    """
    check_rank("pages", cache.pages, "num_pages S 2 K D")
    num_pages, page_size, _, num_kv_heads, head_dim = cache.pages.shape
    axes = {"num_pages": num_pages, "S": page_size, "K_and_V": 2, "K": num_kv_heads}
    check_array("pages", cache.pages, (*_FLOATS, "int8"), **axes, D=head_dim)
    check_scales(cache)
    if cache.scales is not None:
        check_array("scales", cache.scales, ("float32",), **axes)


def check_heads(num_heads: int, head_dim: int, cache: LayerCache) -> None:
    """Refuse query heads that do not divide among the cache's, or are of another size.

    Raises:
        ValueError: they do not, or are.
    """
    num_kv_heads = cache.pages.shape[3]
    if num_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(f"there are {num_heads} query heads; they must be a multiple of the cache's {num_kv_heads}")
    if head_dim != cache.pages.shape[4]:
        raise ValueError(f"the queries have head_dim {head_dim} and the cache {cache.pages.shape[4]}")


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
