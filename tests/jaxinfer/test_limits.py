"""How many tokens an engine can hold: what the caller asks for against what the model and the memory allow."""

import logging
from dataclasses import replace
from types import SimpleNamespace

import jax
import ml_dtypes
import numpy as np
import pytest

from checkpoints import PRESETS
from jaxinfer import device_memory
from jaxinfer.limits import cache_bytes, resolve_limits

MISTRAL = PRESETS["mistral-7b-v0.1"]
SMOLLM2 = PRESETS["smollm2-135m"]
TWO_GROUPS = replace(SMOLLM2, windows=(None, 512) * 15)
FLOAT32 = np.dtype(np.float32)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
INT8 = np.dtype(np.int8)
MISTRAL_PAGE_BYTES = 16 * 32 * 2 * 8 * 128 * 2
MISTRAL_WEIGHT_BYTES = 7_241_732_096 * 2
GIB = 2**30


def slot_bytes(max_num_seqs: int, vocab_size: int) -> int:
    """A bias in float32 and a count in int32 of every token, for each request that may run and for padding."""
    return (max_num_seqs + 1) * vocab_size * (4 + 4)


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch):
    """Pretends that jax found a GPU with so many bytes, some of them in use."""

    def pretend(limit: int, in_use: int = 0) -> None:
        memory = {"bytes_limit": limit, "bytes_in_use": in_use}
        monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(memory_stats=lambda: memory)])

    return pretend


# ---- what the memory allows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fraction", "share"), [(None, 0.9), (0.5, 0.5), (1, 1.0)])
def test_a_gpu_has_room_for_the_weights_and_the_fraction_asked_for(with_gpu, fraction, share):
    """A100 with 80 GB: 0.9 of it unless asked otherwise, less 14.5 GB of weights and what penalties need, in pages of
    2 MiB, one of them the dummy page."""
    with_gpu(80_000_000_000, 1_000_000)
    limits = resolve_limits(
        MISTRAL, BFLOAT16, weight_bytes=MISTRAL_WEIGHT_BYTES, memory_fraction=fraction, max_num_seqs=256
    )
    room = int(80_000_000_000 * share) - 1_000_000 - MISTRAL_WEIGHT_BYTES - slot_bytes(256, 32000)
    assert limits.num_kv_pages == room // MISTRAL_PAGE_BYTES - 1
    assert limits.max_model_len == 32768


def test_a_gpu_too_small_is_an_error_that_names_all_that_takes_the_room(with_gpu):
    """The weights alone, or the state of very many slots."""
    for limit, weight_bytes, slots in ((12_000_000_000, MISTRAL_WEIGHT_BYTES, 32), (GIB, 1000, 4096)):
        with_gpu(limit)
        expected = (
            f"room for 0 bytes .* weights, which take {weight_bytes}, .* takes {slot_bytes(slots, 32000)} "
            rf"\({32000 * 8} for each of max_num_seqs {slots}, .* take {2 * MISTRAL_PAGE_BYTES}"
        )
        with pytest.raises(ValueError, match=expected):
            resolve_limits(MISTRAL, BFLOAT16, weight_bytes=weight_bytes, max_num_seqs=slots)


def test_a_cpu_gives_a_gib_or_the_fraction_asked_for(monkeypatch):
    page_bytes = 16 * 30 * 2 * 3 * 64 * 4
    assert resolve_limits(SMOLLM2, FLOAT32, weight_bytes=10**12).num_kv_pages == GIB // page_bytes - 1
    monkeypatch.setattr(device_memory, "cpu_memory", lambda: 4 * GIB)
    limits = resolve_limits(SMOLLM2, FLOAT32, weight_bytes=GIB, memory_fraction=0.75)
    assert limits.num_kv_pages == (2 * GIB - slot_bytes(32, 49152)) // page_bytes - 1


def test_int8_holds_nearly_four_times_as_much_as_float32():
    """64 bytes and a scale of 4 for the 256 bytes of a head."""
    pages = {dtype: resolve_limits(SMOLLM2, dtype, weight_bytes=0).num_kv_pages for dtype in (FLOAT32, INT8)}
    assert pages[INT8] == GIB // (16 * 30 * 2 * 3 * 68) - 1
    assert 3.7 < pages[INT8] / pages[FLOAT32] < 3.8


def test_a_pool_is_no_larger_than_all_requests_together_need():
    limits = resolve_limits(SMOLLM2, FLOAT32, weight_bytes=0, max_model_len=100, max_num_seqs=3)
    assert (limits.max_model_len, limits.num_kv_pages) == (100, 3 * 7)
    limits = resolve_limits(TWO_GROUPS, FLOAT32, weight_bytes=0, max_model_len=2000, max_num_seqs=1)
    assert limits.group_pages == limits.table_widths == (125, (512 + 256) // 16 + 1)


# ---- groups ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [FLOAT32, INT8])
def test_groups_have_pages_in_proportion_and_fill_the_memory(dtype):
    """15 layers whose requests take 512 pages, and 15 of at most 49."""
    limits = resolve_limits(TWO_GROUPS, dtype, weight_bytes=0)
    assert limits.table_widths == (512, 49)
    first, second = limits.group_pages
    assert second == -(-first * 49 // 512)
    page_bytes = 16 * 2 * 3 * (64 * dtype.itemsize + (4 if dtype == INT8 else 0))

    def bytes_of(first_pages: int) -> int:
        return 15 * page_bytes * (1 + first_pages + 1 + -(-first_pages * 49 // 512))

    assert cache_bytes(limits, TWO_GROUPS, dtype) == bytes_of(first) <= GIB < bytes_of(first + 1)


def test_a_window_bounds_the_pages_of_a_request_and_not_its_length():
    """511 pages of 2 MiB hold 8,176 tokens, and the model's 32,768 in each request: a window of 4,096 and a chunk take
    273 pages."""
    limits = resolve_limits(MISTRAL, BFLOAT16, weight_bytes=0)
    assert (limits.max_model_len, limits.num_kv_pages, limits.table_widths) == (32768, 511, (273,))
    limits = resolve_limits(MISTRAL, BFLOAT16, weight_bytes=0, num_kv_pages=273)
    assert (limits.max_model_len, limits.num_kv_pages) == (32768, 273)


def test_a_pool_smaller_than_a_window_bounds_the_length(caplog):
    """4,096 positions in a row touch at most 257 pages of 16."""
    assert resolve_limits(MISTRAL, BFLOAT16, weight_bytes=0, num_kv_pages=257).max_model_len == 32768
    assert "max_model_len" not in caplog.text
    limits = resolve_limits(MISTRAL, BFLOAT16, weight_bytes=0, num_kv_pages=256)
    assert limits.max_model_len == 4096
    assert "max_model_len is 4096 instead of 32768" in caplog.text
    limits = resolve_limits(MISTRAL, FLOAT32, weight_bytes=0)  # a GiB has 256 pages of 4 MiB
    assert (limits.max_model_len, limits.num_kv_pages) == (255 * 16, 255)


def test_rectangles_are_as_wide_for_a_window_as_without():
    with pytest.raises(ValueError, match="max_model_len is 32768, and the memory holds the keys and values of 8176 "):
        resolve_limits(MISTRAL, BFLOAT16, weight_bytes=0, max_model_len=32768, cache="contiguous")
    limits = resolve_limits(MISTRAL, BFLOAT16, weight_bytes=0, max_model_len=8000, cache="contiguous")
    assert (limits.table_widths, limits.num_kv_pages) == ((500,), 511)


# ---- what the caller asks for ----------------------------------------------------------------------------------------


def test_without_a_wish_the_length_is_the_models_or_what_the_cache_holds(caplog):
    assert resolve_limits(SMOLLM2, FLOAT32, weight_bytes=0).max_model_len == 8192
    with caplog.at_level(logging.WARNING):
        limits = resolve_limits(SMOLLM2, FLOAT32, weight_bytes=0, num_kv_pages=10)
    assert limits.max_model_len == 160
    assert "max_model_len is 160 instead of 8192" in caplog.text


def test_a_length_that_was_asked_for_and_does_not_fit_is_refused_with_the_tokens_that_do():
    with pytest.raises(ValueError, match="max_model_len is 32768, and the memory holds the keys and values of 4080 "):
        resolve_limits(MISTRAL, FLOAT32, weight_bytes=0, max_model_len=32768)
    with pytest.raises(ValueError, match="max_model_len is 32768, and num_kv_pages 5 holds 80 tokens"):
        resolve_limits(MISTRAL, FLOAT32, weight_bytes=0, max_model_len=32768, num_kv_pages=5)
    assert resolve_limits(MISTRAL, FLOAT32, weight_bytes=0, max_model_len=80, num_kv_pages=5).max_model_len == 80


def test_a_line_says_how_many_tokens_the_pool_holds(caplog):
    with caplog.at_level(logging.INFO, logger="jaxinfer.limits"):
        resolve_limits(SMOLLM2, FLOAT32, weight_bytes=0, num_kv_pages=600)
        resolve_limits(TWO_GROUPS, INT8, weight_bytes=0, num_kv_pages=1024)
    first, second = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert first == "KV cache, float32, 0.41 GiB: 600 pages of 16 tokens hold 9,600 tokens"
    assert second == (
        "KV cache, int8, 0.10 GiB: 1,024 pages of 16 tokens hold 16,384 tokens; "
        "98 pages of 16 tokens hold 1,568 tokens (window 512: at most 784 of a request)"
    )


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
        ({"memory_fraction": 1.5}, r"memory_fraction is 1\.5; it must be a number in \(0, 1\]"),
        ({"memory_fraction": 7, "num_kv_pages": 5}, r"memory_fraction is 7; it must be a number in \(0, 1\]"),
        ({"prefix_cache": 1}, "prefix_cache is 1; it must be True or False"),
        ({"cache": "ring"}, "cache is 'ring'; it must be 'paged' or 'contiguous'"),
    ],
)
def test_a_bad_limit_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        resolve_limits(SMOLLM2, FLOAT32, weight_bytes=0, **arguments)


# ---- sizes that a GPU's offsets do not reach -------------------------------------------------------------------------

LARGEST_REACHED, SMALLEST_REACHED = 65_534, 131_072
"""A page of a layer of Mistral in int8 takes 2^15 bytes. With the dummy page these are the last pool below 2^31 bytes
and the first above 2^32."""


@pytest.mark.parametrize("num_kv_pages", [LARGEST_REACHED + 1, 100_000, SMALLEST_REACHED - 1])
def test_pages_of_int8_that_a_gpu_does_not_reach_are_refused(with_gpu, num_kv_pages):
    with_gpu(10**12)
    size = (1 + num_kv_pages) * 2**15
    with pytest.raises(ValueError, match=f"num_kv_pages is {num_kv_pages}, which makes {size} bytes of int8"):
        resolve_limits(MISTRAL, INT8, weight_bytes=0, num_kv_pages=num_kv_pages)
    assert resolve_limits(MISTRAL, BFLOAT16, weight_bytes=0, num_kv_pages=num_kv_pages).num_kv_pages == num_kv_pages


@pytest.mark.parametrize("num_kv_pages", [LARGEST_REACHED, SMALLEST_REACHED])
def test_pages_of_int8_below_and_above_are_taken(num_kv_pages):
    assert resolve_limits(MISTRAL, INT8, weight_bytes=0, num_kv_pages=num_kv_pages).num_kv_pages == num_kv_pages


@pytest.mark.parametrize(
    ("room_pages", "expected"),
    [(60_000, 60_000), (65_536, LARGEST_REACHED), (100_000, LARGEST_REACHED), (131_072, 131_072), (135_000, 135_000)],
)
def test_as_many_pages_of_int8_are_taken_from_the_memory_as_a_gpu_reaches(with_gpu, room_pages, expected):
    page_bytes = 16 * 32 * 2 * 8 * (128 + 4)
    with_gpu((1 + room_pages) * page_bytes + slot_bytes(512, 32000))
    limits = resolve_limits(MISTRAL, INT8, weight_bytes=0, memory_fraction=1, max_num_seqs=512)
    assert limits.num_kv_pages == expected
