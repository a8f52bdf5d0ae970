"""Rotary frequencies as transformers scales them, for many parameters: a table without a model."""

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from reference.fixture import Array, Sources, write_reference

HEAD_DIM = 32


def make(sources: Sources) -> None:
    """Write the frequencies and the attention factor of each case, and the cases as a config.json has them.

    Of the files the whole config.json is kept: in them it matters where a value is written.
    """
    cases = [*_llama3(), *_yarn(), {"rope_type": "linear", "factor": 3.0, "rope_theta": 1e4}]
    frequencies, factors = zip(*map(_computed, cases), strict=True)
    files = _files()
    file_frequencies, file_factors = zip(*map(_read_and_computed, files), strict=True)
    write_reference(
        sources.fixtures / "rope_scalings",
        {
            "frequencies": Array(np.stack(frequencies), "[case, D / 2], radians a token, float32"),
            "attention_factors": Array(np.array(factors, np.float64), "[case]"),
            "file_frequencies": Array(np.stack(file_frequencies), "[file, D / 2], radians a token, float32"),
            "file_attention_factors": Array(np.array(file_factors, np.float64), "[file]"),
        },
        "What transformers makes of the rope_parameters of config.json, case by case.",
        head_dim=HEAD_DIM,
        cases=cases,
        files=files,
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


def _files() -> list[dict[str, Any]]:
    """Whole files in the forms of both versions of transformers, the first context in each of its places."""
    first = "original_max_position_embeddings"
    yarn, llama3 = {"type": "yarn", "factor": 4.0}, {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scalings: list[tuple[str, dict[str, Any]]] = [
        ("qwen2", {"rope_scaling": yarn | {first: 1024}}),
        ("qwen2", {"rope_scaling": yarn, first: 1024}),
        ("qwen2", {"rope_scaling": yarn | {first: 1024}, first: 1024}),
        ("qwen2", {"rope_scaling": yarn}),
        ("qwen3", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6}, first: 128}),
        ("llama", {"rope_scaling": llama3 | {"rope_type": "llama3", first: 256}}),
        ("llama", {"rope_scaling": llama3 | {"rope_type": "llama3"}, first: 256}),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 4.0}, first: 256}),
    ]
    return [_file(kind, scaling) for kind, scaling in scalings]


def _file(kind: str, scaling: dict[str, Any]) -> dict[str, Any]:
    return {
        "model_type": kind,
        "vocab_size": 64,
        "hidden_size": 4 * HEAD_DIM,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": 4096,
        "rope_theta": 1e6,
        "rms_norm_eps": 1e-6,
    } | scaling


def _read_and_computed(file: dict[str, Any]) -> tuple[np.ndarray, float]:
    """What the class of the file's family makes of the file, as a model's rotary embedding asks for it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(file))
        config = AutoConfig.from_pretrained(folder)
    frequencies, factor = ROPE_INIT_FUNCTIONS[config.rope_parameters["rope_type"]](config, "cpu")
    return frequencies.numpy(), factor


def _computed(case: dict[str, Any]) -> tuple[np.ndarray, float]:
    config = LlamaConfig(hidden_size=4 * HEAD_DIM, num_attention_heads=4, head_dim=HEAD_DIM, rope_parameters=dict(case))
    frequencies, factor = ROPE_INIT_FUNCTIONS[case["rope_type"]](config, "cpu")
    return frequencies.numpy(), factor
