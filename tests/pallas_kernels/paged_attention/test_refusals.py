"""What the entries to attention refuse, and in what words."""

import inspect
from functools import partial
from types import SimpleNamespace
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.paged_attention import Config, Implementation, LayerCache, decode_attention, paged_attention
from pallas_kernels.paged_attention.checks import check_cache
from tests.pallas_kernels.paged_attention.attention_cases import Row, make_case
from tests.pallas_kernels.paged_attention.calls import arguments_of
from tests.pallas_kernels.paged_attention.decode_cases import make_decode_case

implementations = pytest.mark.parametrize("implementation", get_args(Implementation))


def call_paged(changes: dict[str, Any], **chosen: Any) -> Any:
    """A call with other arrays, and without the check of shapes that tests add, which would be first to refuse them."""
    case = make_case([Row(length=5)])
    chosen = {"window": None, "scale": case.scale} | chosen
    arguments = arguments_of(case.arrays | changes)
    return jax.eval_shape(lambda a: inspect.unwrap(paged_attention)(**a, **chosen), arguments)


def call_decode(changes: dict[str, Any], **chosen: Any) -> Any:
    case = make_decode_case([5, 9])
    chosen = {"window": None, "scale": case.scale, "norm_eps": case.norm_eps} | chosen
    arguments = arguments_of(case.arrays | changes)
    return jax.eval_shape(lambda a: inspect.unwrap(decode_attention)(**a, **chosen), arguments)


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


CACHES = [
    ({"pages": zeros(5, 4, 2, 2, 16, dtype=np.int8)}, "pages are int8; int8 pages need scales"),
    ({"pages": zeros(5, 4, 2, 2, 16), "scales": zeros(5, 4, 2, 2)}, "pages are float32; .* others take none"),
]


BROKEN_CACHES = [
    ({"pages": zeros(5, 4, 1, 2, 16)}, r"pages has the shape \[5, 4, 1, 2, 16\]; .* K_and_V = 2"),
    ({"pages": zeros(5, 4, 2, 16)}, r"pages has the shape \[5, 4, 2, 16\]; it must be \[num_pages S 2 K D\]"),
    ({"pages": zeros(5, 0, 2, 2, 16)}, "pages .* none of them 0"),
    ({"pages": zeros(5, 4, 2, 2, 16, dtype=np.int32)}, "pages is int32; it must be float32 or bfloat16 or int8"),
    *(
        ({"pages": zeros(5, 4, 2, 2, 16, dtype=np.int8), "scales": zeros(*shape)}, r"scales has the shape")
        for shape in ((1, 4, 2, 2), (5, 4, 2, 1), (5, 4, 2, 2, 16))
    ),
    (
        {"pages": zeros(5, 4, 2, 2, 16, dtype=np.int8), "scales": zeros(5, 4, 2, 2, dtype=np.int32)},
        "scales is int32; it must be float32",
    ),
]


@pytest.mark.parametrize(("arrays", "message"), BROKEN_CACHES)
def test_caches_that_are_refused(arrays, message):
    """By both operations, which begin with this check; in tests a ``LayerCache`` refuses such arrays even earlier."""
    cache = SimpleNamespace(**{"scales": None} | arrays)
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(check_cache)(cache)


@implementations
@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"q": zeros(2, 1, 5, 16)}, "there are 5 query heads; they must be a multiple of the cache's 2"),
        ({"q": zeros(2, 1, 1, 16)}, "there are 1 query heads; they must be a multiple of the cache's 2"),
        ({"q": zeros(2, 1, 4, 8)}, "head_dim 8 and the cache 16"),
        ({"q": zeros(2, 1, 4)}, r"q has the shape \[2, 1, 4\]; it must be \[N Q H D\], none of them 0"),
        ({"q": zeros(0, 1, 4, 16)}, r"q has the shape \[0, 1, 4, 16\]; it must be \[N Q H D\], none of them 0"),
        ({"q": zeros(2, 0, 4, 16)}, "none of them 0"),
        ({"q": zeros(2, 1, 4, 16, dtype=np.int32)}, "q is int32; it must be float32 or bfloat16"),
        ({"q": zeros(2, 1, 4, 16, dtype=np.float16)}, "q is float16; it must be float32 or bfloat16"),
        ({"page_table": zeros(2, dtype=np.int32)}, r"page_table has the shape \[2\]; it must be \[R P\]"),
        ({"page_table": zeros(1, 0, dtype=np.int32)}, "page_table .* none of them 0"),
        ({"page_table": zeros(1, 3)}, "page_table is float32; it must be int32"),
        ({"first_page": zeros(2, dtype=np.int32)}, r"first_page has the shape \[2\]; it must be \[R = 1\]"),
        *(
            ({name: zeros(count, dtype=np.int32)}, rf"{name} has the shape \[{count}\]; it must be \[N = 2\]")
            for name in ("block_row", "block_start", "block_len")
            for count in (1, 3)
        ),
        ({"block_len": zeros(2)}, "block_len is float32; it must be int32"),
        ({"into": zeros(1, 4, 16)}, "into has 1 tokens; it must have at least the 2 of q"),
        ({"into": zeros(2, 4, 16, dtype=np.float16)}, "into is float16; it must be float32"),
        ({"into": zeros(2, 4, 8)}, r"into has the shape \[2, 4, 8\]; it must be \[T = 2, H = 4, D = 16\]"),
        *CACHES,
    ],
)
def test_arrays_that_paged_attention_refuses(implementation, arrays, message):
    with pytest.raises(ValueError, match=message):
        call_paged(arrays, implementation=implementation)


@implementations
@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"qkv": zeros(4, 9, 16)}, "there are 5 query heads; they must be a multiple of the cache's 2"),
        ({"qkv": zeros(4, 4, 16)}, "there are 0 query heads; they must be a multiple"),
        ({"qkv": zeros(4, 3, 16)}, "there are -1 query heads; they must be a multiple"),
        ({"qkv": zeros(4, 8, 8)}, "head_dim 8 and the cache 16"),
        ({"arrivals": zeros(1, 2, dtype=np.int32)}, "there are 2 decode rows, and arrivals has 1"),
        ({"qkv": zeros(1, 8, 16)}, "there are 2 decode rows, and qkv has 1"),
        ({"qkv": zeros(4, 8)}, r"qkv has the shape \[4, 8\]; it must be \[T heads D\]"),
        ({"qkv": zeros(4, 8, 16, dtype=np.int32)}, "qkv is int32; it must be float32 or bfloat16"),
        ({"position": zeros(0, dtype=np.int32)}, r"position has the shape \[0\]; it must be \[B\], none of them 0"),
        ({"position": zeros(2)}, "position is float32; it must be int32"),
        ({"arrivals": zeros(2, 1, dtype=np.int32)}, r"arrivals .* \[2, 1\]; it must be \[rows = 2, K = 2\]"),
        ({"page_table": zeros(1, 3, dtype=np.int32)}, r"page_table .* \[1, 3\]; it must be \[B = 2, P = 3\]"),
        ({"first_page": zeros(1, dtype=np.int32)}, r"first_page has the shape \[1\]; it must be \[B = 2\]"),
        ({"cos": zeros(1, 8)}, r"cos has the shape \[1, 8\]; it must be \[T = 4, half_D = 8\]"),
        ({"sin": zeros(4, 16)}, r"sin has the shape \[4, 16\]; it must be \[T = 4, half_D = 8\]"),
        ({"cos": zeros(4, 8, dtype=np.int32)}, "cos is int32"),
        ({"q_norm": zeros(8)}, r"q_norm has the shape \[8\]; it must be \[D = 16\]"),
        ({"k_norm": zeros(1)}, r"k_norm has the shape \[1\]; it must be \[D = 16\]"),
        *CACHES,
    ],
)
def test_arrays_that_decode_attention_refuses(implementation, arrays, message):
    with pytest.raises(ValueError, match=message):
        call_decode(arrays, implementation=implementation)


@implementations
@pytest.mark.parametrize("call", [call_paged, call_decode])
@pytest.mark.parametrize("window", [0, -1, 2**31, 2.5, np.nan, True, "4"])
def test_windows_that_are_refused(implementation, call, window):
    with pytest.raises(
        ValueError, match=f"window is {window!r}; it must be a whole number in .1, 2147483647."
    ) as caught:
        call({}, implementation=implementation, window=window)
    assert "None for no window" in str(caught.value)


@implementations
@pytest.mark.parametrize("call", [call_paged, call_decode])
@pytest.mark.parametrize("scale", [np.nan, np.inf, 1e300, 1j, None, "1"])
def test_scales_that_are_refused(implementation, call, scale):
    with pytest.raises(ValueError, match=r"scale is .*; it must be a number of Python in .-3.4"):
        call({}, implementation=implementation, scale=scale)


@implementations
@pytest.mark.parametrize("norm_eps", [-1e-6, np.nan, np.inf])
def test_epsilons_that_are_refused(implementation, norm_eps):
    with pytest.raises(ValueError, match=r"norm_eps is .*; it must be a number of Python in .0, 3.4"):
        call_decode({}, implementation=implementation, norm_eps=norm_eps)


@implementations
@pytest.mark.parametrize("call", [call_paged, call_decode])
def test_numbers_of_numpy_are_numbers(implementation, call):
    call({}, implementation=implementation, window=np.int64(3), scale=np.float32(0.5))


@implementations
@pytest.mark.parametrize("call", [call_paged, call_decode])
def test_a_config_that_is_none_is_refused(implementation, call):
    with pytest.raises(ValueError, match=r"config is \{'block_rows': 16\}; it must be a Config, or None"):
        call({}, implementation=implementation, config={"block_rows": 16})


@implementations
def test_an_odd_head_cannot_be_rotated(implementation):
    arrays = {"qkv": zeros(4, 8, 15), "cos": zeros(4, 7), "sin": zeros(4, 7), "pages": zeros(5, 4, 2, 2, 15)}
    with pytest.raises(ValueError, match="head_dim is 15; rotary embeddings need an even one"):
        call_decode(arrays | {"q_norm": None, "k_norm": None}, implementation=implementation)


@pytest.mark.parametrize("call", [call_paged, call_decode])
def test_an_unknown_implementation_is_refused(call):
    with pytest.raises(ValueError, match="implementation is 'cuda'; known are xla, pallas"):
        call({}, implementation="cuda")


NO_NORMS = {"q_norm": None, "k_norm": None}


@pytest.mark.parametrize(
    ("call", "arrays"),
    [
        (call_paged, {"q": zeros(2, 1, 4, 320)}),
        (
            call_decode,
            {"qkv": zeros(4, 8, 320), "cos": zeros(4, 160), "sin": zeros(4, 160), "q_norm": None, "k_norm": None},
        ),
    ],
)
def test_a_head_that_is_too_large_for_the_kernel(call, arrays):
    arrays |= {"pages": zeros(5, 4, 2, 2, 320)}
    with pytest.raises(NotImplementedError, match="at most 256, and this is 320"):
        call(arrays, implementation="pallas")
    call(arrays, implementation="xla")


def test_a_group_that_is_too_large_for_a_tile_of_decode_rows():
    arrays = {"qkv": zeros(4, 17 * 2 + 4, 16)}
    config = Config(block_rows=16)
    with pytest.raises(NotImplementedError, match="block_rows is 16 and 17 query heads share a kv head"):
        call_decode(arrays, implementation="pallas", config=config)
    call_decode(arrays, implementation="pallas")  # its own choice is large enough
    call_paged({"q": zeros(2, 1, 17 * 2, 16)}, implementation="pallas", config=config)  # takes several tiles


@pytest.mark.parametrize(
    ("dtype", "num_pages", "fits"),
    [
        (np.int8, 2**31 // 2**14 - 1, True),
        (np.int8, 2**31 // 2**14, False),
        (np.int8, 2**32 // 2**14, False),
        (np.int8, 2**32 // 2**14 + 1, True),  # from here on the compiler counts in 64 bits
        (jnp.bfloat16, 2**31 // 2**14 - 1, True),
        (jnp.bfloat16, 2**31 // 2**14 + 1, True),
    ],
)
def test_pages_that_the_kernel_cannot_address(dtype, num_pages, fits):
    """An offset that does not fit 32 bits would read and write elsewhere on a GPU, and nowhere else be seen."""
    shape = (num_pages, 16, 2, 8, 64)  # 2^14 numbers a page
    cache = LayerCache(
        jax.ShapeDtypeStruct(shape, dtype), jax.ShapeDtypeStruct(shape[:-1], jnp.float32) if dtype == np.int8 else None
    )
    rows = [jax.ShapeDtypeStruct(of, jnp.int32) for of in ((1, 4), (1,), (1,), (1,), (1,))]
    call = partial(paged_attention, window=None, scale=1.0, implementation="pallas")
    queries = jax.ShapeDtypeStruct((1, 1, 8, 64), jnp.bfloat16)
    if fits:
        jax.eval_shape(call, queries, cache, *rows)
    else:
        with pytest.raises(NotImplementedError, match=f"a layer's int8 pages have {num_pages * 2**14} bytes"):
            jax.eval_shape(call, queries, cache, *rows)


@implementations
def test_what_is_not_refused_gives_the_shapes_of_the_arguments(implementation):
    assert call_paged({}, implementation=implementation) == jax.ShapeDtypeStruct((2, 4, 16), jnp.float32)
    longer = call_paged({"into": zeros(7, 4, 16)}, implementation=implementation)
    assert longer == jax.ShapeDtypeStruct((7, 4, 16), jnp.float32)
    attended, cache, arrivals = call_decode({}, implementation=implementation)
    assert attended == jax.ShapeDtypeStruct((4, 4, 16), jnp.float32)
    assert cache.scales is None and arrivals.shape == (2, 2)
