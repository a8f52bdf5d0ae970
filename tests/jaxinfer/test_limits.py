"""How many tokens an engine can hold: what the caller asks for against what the model and the memory allow."""

import logging

import ml_dtypes
import numpy as np
import pytest

from checkpoints import PRESETS
from jaxinfer.limits import pages_that_fit, resolve_limits

MISTRAL = PRESETS["mistral-7b-v0.1"]
SMOLLM2 = PRESETS["smollm2-135m"]
FLOAT32 = np.dtype(np.float32)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
MISTRAL_PAGE_BYTES = 16 * 32 * 2 * 8 * 128 * 2
MISTRAL_WEIGHT_BYTES = 7_241_732_096 * 2


def test_a_gpu_keeps_a_tenth_free_and_room_for_the_weights() -> None:
    """A100 with 80 GB: 0.9 of it less 14.5 GB of weights, in pages of 2 MiB, one of them the dummy page."""
    memory = {"bytes_limit": 80_000_000_000, "bytes_in_use": 1_000_000}
    room = 72_000_000_000 - 1_000_000 - MISTRAL_WEIGHT_BYTES
    assert pages_that_fit(MISTRAL, BFLOAT16, 16, MISTRAL_WEIGHT_BYTES, memory) == room // MISTRAL_PAGE_BYTES - 1


def test_a_gpu_too_small_for_the_weights_is_an_error() -> None:
    with pytest.raises(ValueError, match=f"room for -.* bytes .*, and a page takes {MISTRAL_PAGE_BYTES}"):
        pages_that_fit(MISTRAL, BFLOAT16, 16, MISTRAL_WEIGHT_BYTES, {"bytes_limit": 12_000_000_000, "bytes_in_use": 0})


def test_a_pool_is_no_larger_than_all_requests_together_need() -> None:
    limits = resolve_limits(SMOLLM2, FLOAT32, weight_bytes=0, max_model_len=100, max_num_seqs=3)
    assert (limits.max_model_len, limits.num_kv_pages) == (100, 3 * 7)


def test_without_a_wish_the_length_is_the_models_or_what_the_cache_holds(caplog: pytest.LogCaptureFixture) -> None:
    assert resolve_limits(SMOLLM2, FLOAT32, weight_bytes=0).max_model_len == 8192
    with caplog.at_level(logging.WARNING):
        limits = resolve_limits(SMOLLM2, FLOAT32, weight_bytes=0, num_kv_pages=10)
    assert limits.max_model_len == 160
    assert "max_model_len is 160 instead of 8192" in caplog.text


def test_a_length_that_memory_cannot_hold_is_refused_unless_the_pages_are_given() -> None:
    with pytest.raises(ValueError, match=r"max_model_len is 32768, and the memory holds .* tokens"):
        resolve_limits(MISTRAL, FLOAT32, weight_bytes=0, max_model_len=32768)
    assert resolve_limits(MISTRAL, FLOAT32, weight_bytes=0, max_model_len=32768, num_kv_pages=5).num_kv_pages == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_model_len": "64"}, "max_model_len is '64'"),
        ({"max_model_len": -1}, "max_model_len is -1"),
        ({"max_model_len": 8193}, "max_model_len is 8193; this model takes at most 8192"),
        ({"num_kv_pages": True}, "num_kv_pages is True"),
        ({"page_size": 0}, "page_size is 0"),
        ({"num_kv_pages": 10**30}, r"num_kv_pages is 10{30}; it must be a whole number in \[1, 2147483647\]"),
        ({"max_num_seqs": 10**9}, r"max_num_seqs is 1000000000; it must be a whole number in \[1, 65536\]"),
        ({"max_num_seqs": 1.0}, r"max_num_seqs is 1\.0"),
        ({"seed": True}, "seed is True"),
    ],
)
def test_a_bad_limit_is_named(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve_limits(SMOLLM2, FLOAT32, weight_bytes=0, **arguments)
