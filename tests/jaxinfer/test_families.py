"""Each family beside Mistral's against transformers: from the files to the logits of every position.

The models are small and random and have what is particular to their family; the texts go past the window and past the
length for which the rotary angles were made.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from checkpoints import open_checkpoint
from jaxinfer.config import ModelConfig
from tests.engines import decoder
from tests.numpy_decoder import decoder_logits
from tests.reference import FIXTURES, load_reference, read_hf_weights
from tests.scoring import prefill_logits

TOLERANCE = 1e-4

UNSCALED = {"rope_scaling": None}

# What of each model must show in its logits: the model without it.
PECULIARITIES: dict[str, list[dict[str, Any]]] = {
    "tiny_llama2": [{"rope_theta": 500_000.0}],
    "tiny_llama31": [UNSCALED],
    "tiny_llama32": [UNSCALED],
    "tiny_llama_linear": [UNSCALED],
    "tiny_qwen2": [
        {"qkv_bias": False},
        {"windows": (None, None, None)},
        {"windows": (8, 8, 8)},
        {"windows": (None, 9, 8)},
    ],
    "tiny_qwen2_yarn": [UNSCALED, {"qkv_bias": False}, {"attention_factor": 1.0}],
    "tiny_qwen3": [{"qk_norm": False}],
}


def read_config(name: str) -> ModelConfig:
    return open_checkpoint(FIXTURES / name).config


@pytest.mark.parametrize("name", PECULIARITIES)
def test_logits_equal_those_of_transformers(name: str) -> None:
    reference = load_reference(name).arrays
    logits = prefill_logits(decoder(FIXTURES / name), reference["token_ids"], chunk=16, page_size=8)
    assert len(logits) == 48
    assert np.abs(logits - reference["logits"]).max() < TOLERANCE


@pytest.mark.parametrize("name", PECULIARITIES)
def test_each_peculiarity_shows(name: str) -> None:
    """Negative controls, by the definition in NumPy: without it every late position is off by far more."""
    reference = load_reference(name)
    config = read_config(name)
    weights = read_hf_weights(reference.folder, config)
    logits, token_ids = reference.arrays["logits"], reference.arrays["token_ids"]
    assert np.abs(decoder_logits(config, weights, token_ids) - logits).max() < TOLERANCE
    for without in PECULIARITIES[name]:
        if "attention_factor" in without:
            without = {"rope_scaling": replace(config.rope_scaling, **without)}
        other = decoder_logits(replace(config, **without), weights, token_ids)
        assert np.abs(other - logits).max(axis=1)[24:].min() > 1e-2, without


def test_the_texts_go_past_the_window_and_the_first_context() -> None:
    qwen = read_config("tiny_qwen2")
    assert qwen.windows == (None, 8, 8)
    for name, original in (
        ("tiny_llama31", 32),
        ("tiny_llama32", 32),
        ("tiny_llama_linear", 16),
        ("tiny_qwen2_yarn", 32),
    ):
        config = read_config(name)
        assert config.rope_scaling is not None
        assert original < len(load_reference(name).arrays["token_ids"]) <= config.max_position_embeddings, name
    # One frequency is kept, two are blended, the others divided by the factor.
    divisors = np.array(read_config("tiny_llama31").rope_scaling.divisors)
    assert (divisors == 1).sum() == 1
    assert (divisors == 8).sum() == 5


def test_the_shapes_are_those_that_trip_readers_up() -> None:
    """As many kv heads as query heads; a head_dim that is not hidden / heads; tied and not."""
    llama2, qwen3 = read_config("tiny_llama2"), read_config("tiny_qwen3")
    assert llama2.num_heads == llama2.num_kv_heads
    assert qwen3.head_dim * qwen3.num_heads != qwen3.hidden_size
    assert {read_config(name).tie_embeddings for name in ("tiny_llama31", "tiny_llama32")} == {False, True}
