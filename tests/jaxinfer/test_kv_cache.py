"""The cache on the device."""

import jax.numpy as jnp
import pytest

from checkpoints import PRESETS
from jaxinfer import kv_cache


def test_bytes_per_token_are_those_of_the_arrays() -> None:
    """SmolLM2: 30 layers, K and V, 3 heads of 64, 4 bytes each."""
    config = PRESETS["smollm2-135m"]
    assert kv_cache.bytes_per_token(config, jnp.dtype(jnp.float32)) == 30 * 2 * 3 * 64 * 4
    cache = kv_cache.allocate(config, num_pages=(4,), page_size=16, max_num_seqs=2, dtype=jnp.dtype(jnp.bfloat16))
    assert sum(layer.pages.nbytes for layer in cache.layers) == 5 * 16 * kv_cache.bytes_per_token(
        config, jnp.dtype(jnp.bfloat16)
    )


def test_a_cache_that_the_device_cannot_hold_is_refused_with_the_numbers() -> None:
    with pytest.raises(
        ValueError, match="num_kv_pages is 2000000000: the device has no room for 1474560000737280 bytes"
    ):
        kv_cache.allocate(
            PRESETS["smollm2-135m"], num_pages=(2_000_000_000,), page_size=16, max_num_seqs=2, dtype=jnp.dtype(jnp.float32)
        )
