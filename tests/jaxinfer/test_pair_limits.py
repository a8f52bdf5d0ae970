"""What two models on one device are given: windows that both take, and caches that leave room for all weights."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checkpoints import PRESETS
from jaxinfer import pair_limits
from jaxinfer.config import EngineConfig
from jaxinfer.loading import LoadedModel, Numbers
from jaxinfer.pair_limits import resolve_pair_pages, resolve_pair_window

MISTRAL = PRESETS["mistral-7b-v0.3"]
GIB = 2**30
TOKEN_BYTES = 32 * 2 * 8 * 128
"""Of one token in a cache of bytes: K and V of 32 layers, 8 heads of 128 each."""
STATE_BYTES = 2 * 3 * 32768 * 8
"""Of both engines: a bias and a tally for each token of the vocabulary, for two sequences and for padding."""


def pages(*, weights=(14 * GIB, 7 * GIB), dtypes=("bfloat16", "int8"), fraction=None, window=2048):
    limits = EngineConfig(max_model_len=window, max_num_seqs=2, num_kv_pages=1)
    bfloat16 = np.dtype(jnp.bfloat16)
    held = [Numbers(bfloat16, jnp.dtype(of_cache), {}, size) for of_cache, size in zip(dtypes, weights, strict=True)]
    return resolve_pair_pages(limits, [(MISTRAL, each) for each in held], fraction)


@pytest.fixture
def gpu(monkeypatch):
    def of(limit, in_use=0):
        memory = {"bytes_limit": limit, "bytes_in_use": in_use}
        monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(memory_stats=lambda: memory)])

    return of


@pytest.mark.parametrize(
    ("window", "max_model_len", "lengths", "expected"),
    [
        (None, None, (32768, 131072), 2048),
        (None, None, (1000, 131072), 1000),
        (None, None, (32768, 2047), 2047),
        (None, 8192, (32768, 32768), 2048),
        (None, 512, (32768, 32768), 512),
        (8192, None, (32768, 131072), 8192),
        (32768, None, (32768, 131072), 32768),
        (300, 300, (32768, 400), 300),
    ],
)
def test_windows_are_as_asked_for_or_as_usual_and_no_longer_than_both_models(window, max_model_len, lengths, expected):
    models = [replace(MISTRAL, max_position_embeddings=length) for length in lengths]
    assert resolve_pair_window(window, max_model_len, models) == expected


@pytest.mark.parametrize(
    ("window", "max_model_len", "message"),
    [
        (401, None, r"window is 401; it must be a whole number in \[2, 400\]"),
        (301, 300, r"window is 301; it must be a whole number in \[2, 300\]"),
        (1, None, "window is 1"),
        (None, 401, r"max_model_len is 401; it must be a whole number in \[2, 400\], which both models take"),
        (None, 1, "max_model_len is 1;"),
        (None, "9" * 5000, "max_model_len is '9+...9+'"),
    ],
)
def test_windows_that_a_model_does_not_take_are_refused(window, max_model_len, message):
    models = [MISTRAL, replace(MISTRAL, max_position_embeddings=400)]
    with pytest.raises(ValueError, match=message) as caught:
        resolve_pair_window(window, max_model_len, models)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("fraction", [None, 0.8])
def test_both_caches_fill_what_the_weights_of_both_leave_of_a_gpu(gpu, fraction):
    """An int8 cache has a float32 scale beside each 128 numbers; a page of padding is in each cache."""
    page_bytes = 16 * TOKEN_BYTES * (2 + 1) + 16 * TOKEN_BYTES // 128 * 4
    taken = 21 * GIB + STATE_BYTES + (1 + 200) * page_bytes
    for spare, expected in ((0, 200), (-1, 199), (page_bytes - 1, 200), (page_bytes, 201), (10 * GIB, 2 * 128)):
        share = 0.9 if fraction is None else fraction
        gpu(int((taken + spare) / share) + 1)  # what is left of a byte is cut off
        assert pages(fraction=fraction) == expected
    gpu(int((taken + 5 * GIB) / share) + 1, in_use=5 * GIB)
    assert pages(fraction=fraction) == 200


def test_a_pair_that_does_not_fit_is_refused_with_what_it_takes(gpu):
    gpu(24 * GIB)  # 21.6 of it may be taken
    assert pages() >= 128
    with pytest.raises(ValueError, match=r"the weights take 14.00 GiB \(model\) and 7.00 GiB \(ref") as caught:
        pages(window=32768)
    assert "room for 0.60 GiB beside them, where the two caches take 6.07 GiB" in str(caught.value)
    assert "for a window of 32768 tokens; give a smaller window (--window), or" in str(caught.value)
    gpu(22 * GIB)
    with pytest.raises(ValueError, match=r"room for 0.00 GiB beside them, .* \(--quantization, --against-quantization"):
        pages()


def test_on_a_cpu_each_cache_may_take_what_an_engines_own_does_if_there_is_as_much(monkeypatch):
    """Two caches of a 7B model in float32, 1 GiB each, are two windows but for the page of padding."""
    of_both = {"dtypes": ("float32", "float32")}
    monkeypatch.setattr(pair_limits, "cpu_memory", lambda: 64 * GIB)
    assert pages(**of_both) == 255
    monkeypatch.setattr(pair_limits, "cpu_memory", lambda: 23 * GIB)
    assert pages(**of_both) == 255 - 1  # the state of the slots, less than a page
    monkeypatch.setattr(pair_limits, "cpu_memory", lambda: 22 * GIB)
    with pytest.raises(ValueError, match=r"room for 1.00 GiB beside them, where the two caches take 1.01 GiB"):
        pages(**of_both)


def test_numbers_are_those_that_the_formats_take():
    tiny = PRESETS["smollm2-135m"]
    loaded = LoadedModel("some", tiny, lambda dtype, formats: iter(()), None, ())
    numbers = Numbers.choose(loaded, "bfloat16", None, kv_dtype="int8")
    assert (numbers.dtype, numbers.kv_dtype, numbers.formats) == (jnp.bfloat16, np.int8, {})
    assert numbers.weight_bytes == 538_060_032 // 2
