"""The cache on the device."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from checkpoints import PRESETS
from jaxinfer import kv_cache

SMOLLM2 = PRESETS["smollm2-135m"]
FLOAT32, BFLOAT16, INT8 = (jnp.dtype(dtype) for dtype in (jnp.float32, jnp.bfloat16, jnp.int8))


@pytest.mark.parametrize(("dtype", "head_bytes"), [(FLOAT32, 64 * 4), (BFLOAT16, 64 * 2), (INT8, 64 + 4)])
def test_bytes_per_token_are_those_of_the_arrays(dtype: jnp.dtype, head_bytes: int) -> None:
    """SmolLM2: 30 layers, K and V, 3 heads of 64; with int8 a float32 scale for each."""
    assert kv_cache.bytes_per_token(SMOLLM2, dtype) == 30 * 2 * 3 * head_bytes
    cache = kv_cache.allocate(SMOLLM2, num_pages=(4,), page_size=16, max_num_seqs=2, dtype=dtype)
    held = sum(array.nbytes for array in jax.tree.leaves(cache.layers))
    assert held == 5 * 16 * kv_cache.bytes_per_token(SMOLLM2, dtype)


def test_layers_have_the_pages_of_their_group() -> None:
    """Windows of 7 on every second layer: the group without a window comes first, whichever layer does."""
    model = replace(SMOLLM2, windows=(7, None) * 15)
    cache = kv_cache.allocate(model, num_pages=(4, 2), page_size=16, max_num_seqs=2, dtype=INT8)
    assert [layer.pages.shape for layer in cache.layers] == [(3, 16, 2, 3, 64), (5, 16, 2, 3, 64)] * 15
    assert [layer.scales.shape for layer in cache.layers] == [(3, 16, 2, 3), (5, 16, 2, 3)] * 15
    assert cache.arrivals.shape == (2, 3)


def test_only_int8_has_scales() -> None:
    caches = {
        dtype: kv_cache.allocate(SMOLLM2, num_pages=(1,), page_size=4, max_num_seqs=1, dtype=dtype)
        for dtype in (FLOAT32, BFLOAT16, INT8)
    }
    assert [cache.layers[0].pages.dtype for cache in caches.values()] == [*caches]
    assert [cache.layers[0].scales is None for cache in caches.values()] == [True, True, False]
    assert caches[INT8].layers[0].scales.dtype == FLOAT32


@pytest.mark.parametrize(("dtype", "token_bytes"), [(FLOAT32, 46_080), (INT8, 12_240)])
def test_a_cache_that_the_device_cannot_hold_is_refused_with_the_numbers(dtype: jnp.dtype, token_bytes: int) -> None:
    size = 2_000_000_001 * 16 * token_bytes
    with pytest.raises(ValueError, match=f"num_kv_pages is 2000000000: the device has no room for {size} bytes"):
        kv_cache.allocate(SMOLLM2, num_pages=(2_000_000_000,), page_size=16, max_num_seqs=2, dtype=dtype)
