"""What a cache makes of K and V: the slots they go to, and the int8 that they become."""

import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.paged_attention import LayerCache, write
from pallas_kernels.paged_attention.layer_cache import quantize
from tests.pallas_kernels.paged_attention.comparison import BFLOAT16


def quantized(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    steps, scale = map(np.asarray, quantize(jnp.asarray(x)))
    assert steps.dtype == np.int8 and scale.dtype == np.float32
    assert steps.shape == x.shape and scale.shape == x.shape[:-1]
    return steps.astype(np.float64), scale.astype(np.float64)


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16])
@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 1e30])
def test_no_number_is_farther_than_half_a_step_from_its_int8(dtype, size):
    x = (size * np.random.default_rng(0).standard_normal((50, 3, 80))).astype(dtype)
    steps, scale = quantized(x)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(scale, np.abs(exact).max(-1) / 127, rtol=1e-6)
    assert (np.abs(steps).max(-1) == 127).all()
    assert (np.abs(steps * scale[..., None] - exact) <= scale[..., None] * (0.5 + 1e-4)).all()


def test_the_range_is_symmetric():
    x = np.array([[-1.0, 1.0, -0.5, 0.5, 0.0, -1e-9], [-3.0, 2.0, 1.0, 0.0, 0.0, 0.0]], np.float32)
    steps, _ = quantized(x)
    assert steps[0, :2].tolist() == [-127, 127]
    assert steps[1, 0] == -127
    assert steps[0, 4:].tolist() == [0, 0]


def test_numbers_that_int8_holds_are_kept_as_they_are():
    steps = np.arange(-127, 128, dtype=np.float32)
    np.testing.assert_array_equal(quantized(steps * 0.25)[0], steps)


def test_a_head_of_zeros_stays_one():
    steps, scale = quantized(np.zeros((2, 8), np.float32))
    assert (steps == 0).all() and (scale == 0).all()


@pytest.mark.parametrize(("dtype", "has_scales"), [(np.int8, False), (np.float32, True)])
def test_write_refuses_pages_and_scales_that_do_not_fit(dtype, has_scales):
    cache = LayerCache(jnp.zeros((4, 5, 2, 2, 8), dtype), jnp.zeros((4, 5, 2, 2)) if has_scales else None)
    heads, place = jnp.zeros((3, 2, 8)), jnp.zeros(3, jnp.int32)
    with pytest.raises(ValueError, match="int8 pages need scales, and others take none"):
        write(cache, heads, heads, place, place)


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16, np.int8])
def test_write_puts_each_token_at_its_page_and_offset_and_nothing_else(dtype):
    rng = np.random.default_rng(0)
    k, v = rng.standard_normal((2, 3, 2, 8)).astype(np.float32)
    pages = np.full((4, 5, 2, 2, 8), 7, dtype)
    scales = np.full((4, 5, 2, 2), 7, np.float32) if dtype == np.int8 else None
    before = LayerCache(jnp.asarray(pages), None if scales is None else jnp.asarray(scales))
    places = [(3, 0), (1, 4), (3, 4)]
    page, offset = jnp.array(places, jnp.int32).T
    after = write(before, jnp.asarray(k), jnp.asarray(v), page, offset)
    for i, place in enumerate(places):
        for j, heads in enumerate((k[i], v[i])):
            if scales is None:
                pages[(*place, j)] = heads.astype(dtype)
            else:
                pages[(*place, j)], scales[(*place, j)] = quantized(heads)
    np.testing.assert_array_equal(np.asarray(after.pages), pages)
    if scales is not None:
        np.testing.assert_array_equal(np.asarray(after.scales), scales)
