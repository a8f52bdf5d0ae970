"""Rotary frequencies as transformers scales them, for many parameters: a table without a model."""

import itertools
from typing import Any

import numpy as np
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from reference.fixture import Array, Sources, write_reference

HEAD_DIM = 32


def make(sources: Sources) -> None:
    """Write the frequencies and the attention factor of each case, and the cases as a config.json has them."""
    cases = [*_llama3(), *_yarn(), {"rope_type": "linear", "factor": 3.0, "rope_theta": 1e4}]
    frequencies, factors = zip(*map(_computed, cases), strict=True)
    write_reference(
        sources.fixtures / "rope_scalings",
        {
            "frequencies": Array(np.stack(frequencies), "[case, D / 2], radians a token, float32"),
            "attention_factors": Array(np.array(factors, np.float64), "[case]"),
        },
        "What transformers makes of the rope_parameters of config.json, case by case.",
        head_dim=HEAD_DIM,
        cases=cases,
    )


def _llama3() -> list[dict[str, Any]]:
    return [
        {
            "rope_type": "llama3",
            "rope_theta": theta,
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": original,
        }
        for theta, factor, (low, high), original in itertools.product(
            (1e4, 5e5), (8.0, 32.0), ((1.0, 4.0), (2.0, 3.0)), (64, 8192)
        )
    ]


def _yarn() -> list[dict[str, Any]]:
    """Few of the keys are in most files, so each is tried alone and against two contexts."""
    some = (
        {},
        {"truncate": False},
        {"truncate": True, "beta_fast": 16.0, "beta_slow": 2.0},
        {"truncate": False, "beta_fast": 64, "beta_slow": 1},
        {"attention_factor": 1.25},
        {"mscale": 0.707, "mscale_all_dim": 1.0},
        {"mscale": 1.0},
        {"attention_factor": 0.75, "mscale": 2.0, "mscale_all_dim": 1.0},
    )
    shape = {"rope_type": "yarn", "rope_theta": 1e6}
    return [
        shape | {"factor": factor, "original_max_position_embeddings": original} | keys
        for keys, factor, original in itertools.product(some, (1.0, 4.0), (64, 32768))
    ]


def _computed(case: dict[str, Any]) -> tuple[np.ndarray, float]:
    config = LlamaConfig(hidden_size=4 * HEAD_DIM, num_attention_heads=4, head_dim=HEAD_DIM, rope_parameters=dict(case))
    frequencies, factor = ROPE_INIT_FUNCTIONS[case["rope_type"]](config, "cpu")
    return frequencies.numpy(), factor
