"""How a GGUF file says that rotary angles are scaled, held against what llama.cpp computes from the same keys."""

import math
from dataclasses import replace

import numpy as np
import pytest

from checkpoints.checkpoint import open_checkpoint
from jaxinfer.config import RopeScaling
from tests.checkpoints import writers
from tests.checkpoints.writers import CONFIG, GGUF_METADATA, gguf_tensors, known_weights

LINEAR = RopeScaling((4.0,) * 8)
YARN = {"type": "yarn", "factor": 4.0, "original_context_length": 32}


@pytest.fixture
def read(tmp_path):
    def read(scaling, divisors=None, **more):
        metadata = GGUF_METADATA | {f"llama.rope.{key}": value for key, value in more.items()}
        metadata |= {f"llama.rope.scaling.{key}": value for key, value in scaling.items()}
        tensors = gguf_tensors(known_weights())
        if divisors is not None:
            tensors["rope_freqs.weight"] = divisors
        return open_checkpoint(writers.write_gguf(tmp_path / "m.gguf", tensors, metadata)).config

    return read


@pytest.mark.parametrize(
    ("scaling", "more"),
    [
        ({"type": "linear", "factor": 4.0}, {}),
        ({"factor": 4.0}, {}),  # a missing type is linear
        ({}, {"scale_linear": 4.0}),
        ({"factor": 4.0}, {"scale_linear": 2.0}),  # the older name is read where the newer one is not there
    ],
)
def test_linear(read, scaling, more):
    assert read(scaling, **more) == replace(CONFIG, rope_scaling=LINEAR)


@pytest.mark.parametrize(
    "scaling",
    [{}, {"type": "none"}, {"type": "none", "factor": 4.0}, {"factor": 0.0}, {"factor": 1.0}, {"type": "yarn"}],
)
def test_what_scales_nothing(read, scaling):
    assert read(scaling) == CONFIG


@pytest.mark.parametrize(
    ("changes", "fast", "slow", "attention"),
    [
        ({}, 32, 1, 0.1 * math.log(4) + 1),
        ({"yarn_beta_fast": 4.0, "yarn_beta_slow": 0.25}, 4, 0.25, 0.1 * math.log(4) + 1),
        ({"attn_factor": 0.5}, 32, 1, 0.5 * (0.1 * math.log(4) + 1)),
        ({"yarn_log_multiplier": 1.0}, 32, 1, 1.0),
        ({"yarn_ext_factor": 1.0, "yarn_attn_factor": 1.0}, 32, 1, 0.1 * math.log(4) + 1),
    ],
)
def test_yarn_as_llama_cpp_computes_it(read, changes, fast, slow, attention):
    config = read(YARN | changes)
    assert config.max_position_embeddings == 4 * 32
    assert config.rope_scaling.attention_factor == pytest.approx(attention)
    np.testing.assert_allclose(config.rope_scaling.divisors, yarn_divisors(4.0, 32, fast, slow))


def yarn_divisors(factor, original, fast, slow):
    """``rope_yarn`` of ggml: an angle is the blend of the scaled and the unscaled one."""
    dim, base = CONFIG.head_dim, CONFIG.rope_theta
    start = max(0, math.floor(correction(dim, original, fast, base)))
    end = min(dim - 1, math.ceil(correction(dim, original, slow, base)))
    divisors = []
    for i in range(dim // 2):
        kept = 1 - min(1, max(0, (i - start) / max(0.001, end - start)))
        divisors.append(1 / (kept + (1 - kept) / factor))
    return divisors


def correction(dim, original, turns, base):
    return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))


def test_yarn_without_the_first_context_takes_the_files(read):
    config = read({"type": "yarn", "factor": 2.0})
    assert config.max_position_embeddings == 2 * GGUF_METADATA["llama.context_length"]


def test_divisors_are_those_of_the_file(read):
    divisors = np.array([1, 1, 1.5, 2, 4, 8, 8, 8], np.float32)
    assert read({}, divisors) == replace(CONFIG, rope_scaling=RopeScaling(tuple(divisors.tolist())))


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"type": "longrope"}, r"llama\.rope\.scaling\.type is 'longrope'; it must be none, linear, yarn"),
        ({"type": 4}, r"llama\.rope\.scaling\.type is 4; it must be a string"),
        ({"factor": "four"}, r"llama\.rope\.scaling\.factor is 'four'; it must be a number"),
        ({"factor": -2.0}, r"factor is -2\.0"),
        ({"factor": math.nan}, "factor is nan"),
        (YARN | {"yarn_ext_factor": 0.5}, r"yarn_ext_factor is 0\.5; it must be 1"),
        (YARN | {"yarn_attn_factor": 2.0}, r"yarn_attn_factor is 2\.0; it must be 1"),
        (YARN | {"original_context_length": 0}, "original_max_position_embeddings is 0"),
        (YARN | {"factor": math.inf}, "factor is inf"),
        (YARN | {"attn_factor": math.nan}, "attention_factor is nan"),
        (YARN | {"original_context_length": 2**31 - 1}, "max_position_embeddings is 8589934588"),
    ],
)
def test_what_is_refused(read, scaling, message):
    with pytest.raises(ValueError, match=r"m\.gguf: .*" + message):
        read(scaling)


@pytest.mark.parametrize(
    ("divisors", "message"),
    [
        (np.ones(7, np.float32), r"rope_freqs\.weight is F32 of shape \(7,\); it must be numbers of shape \(8,\)"),
        (np.ones((8, 1), np.float32), r"rope_freqs\.weight is \w+ of shape \(8, 1\)"),
        (np.full(8, np.nan, np.float32), "divisors.* is nan"),
        (np.zeros(8, np.float32), r"divisors.* is 0\.0"),
    ],
)
def test_divisors_that_are_none(read, divisors, message):
    with pytest.raises(ValueError, match=r"m\.gguf: .*" + message):
        read({}, divisors)


def test_two_scalings_are_one_too_many(read):
    with pytest.raises(ValueError, match=r"rope_freqs\.weight and llama\.rope\.scaling both scale"):
        read({"factor": 2.0}, np.ones(8, np.float32))
