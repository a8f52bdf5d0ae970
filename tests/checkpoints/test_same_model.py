"""One model in every layout that its family is published in: the same shape, weights, logits and greedy ids.

The models are those that transformers wrote into the fixtures, so that the first layout is not written here.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from checkpoints.checkpoint import open_checkpoint
from jaxinfer.config import ModelConfig
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.weights import weight_shapes
from tests.checkpoints import writers
from tests.engines import decoder, engine, run_alone
from tests.numpy_decoder import decoder_logits
from tests.reference import FIXTURES, read_hf_weights

WITHOUT_WINDOWS = {"use_sliding_window": False, "layer_types": None}
"""Converters write no window into a GGUF of these architectures (docs/models.md)."""


@dataclass(frozen=True)
class Family:
    """What a GGUF has of a fixture beside the shape: its architecture, and how it says that angles are scaled."""

    architecture: str
    scaling: dict[str, object] = field(default_factory=dict)
    has_divisors: bool = False


FAMILIES = {
    "tiny_llama2": Family("llama"),
    "tiny_llama31": Family("llama", has_divisors=True),
    "tiny_llama32": Family("llama", has_divisors=True),
    "tiny_llama_linear": Family("llama", {"type": "linear", "factor": 4.0}),
    "tiny_qwen2": Family("qwen2"),
    "tiny_qwen2_yarn": Family(
        "qwen2",
        {
            "type": "yarn",
            "factor": 4.0,
            "original_context_length": 32,
            "yarn_beta_fast": 4.0,
            "yarn_beta_slow": 0.5,
        },
    ),
    "tiny_qwen3": Family("qwen3"),
}


def write_layouts(folder: Path, name: str) -> dict[str, Path]:
    """The fixture in each layout, by the layout's name."""
    written = json.loads((FIXTURES / name / "config.json").read_text()) | WITHOUT_WINDOWS
    original = open_checkpoint(FIXTURES / name).config
    config = replace(original, windows=(None,) * original.num_layers)
    weights = {key: values.astype(np.float32) for key, values in read_hf_weights(FIXTURES / name, config).items()}
    weights = {key: weights[key] for key in weight_shapes(config)}
    tensors = writers.hf_tensors(weights, config)
    paths = {
        "huggingface": writers.write_hf(folder / "hf", tensors, written),
        "shards": writers.write_hf_shards(folder / "shards", tensors, written),
        "gguf": write_gguf(
            folder / "m.gguf",
            weights,
            replace(config, max_position_embeddings=written["max_position_embeddings"]),
            name,
        ),
    }
    if FAMILIES[name] == Family("llama"):
        params = {
            "dim": config.hidden_size,
            "n_layers": config.num_layers,
            "head_dim": config.head_dim,
            "hidden_dim": config.intermediate_size,
            "n_heads": config.num_heads,
            "n_kv_heads": config.num_kv_heads,
            "norm_eps": config.norm_eps,
            "vocab_size": config.vocab_size,
            "rope_theta": config.rope_theta,
            "max_seq_len": config.max_position_embeddings,
        }
        paths["mistral"] = writers.write_mistral(folder / "mistral", writers.mistral_tensors(weights, config), params)
    return paths


def write_gguf(path: Path, weights: writers.Tensors, config: ModelConfig, name: str) -> Path:
    family = FAMILIES[name]
    metadata = writers.gguf_metadata(config, family.architecture)
    metadata |= {f"{family.architecture}.rope.scaling.{key}": value for key, value in family.scaling.items()}
    tensors = writers.gguf_tensors(weights, config, architecture=family.architecture)
    if family.has_divisors:
        tensors["rope_freqs.weight"] = np.array(config.rope_scaling.divisors, np.float32)
    return writers.write_gguf(path, tensors, metadata, architecture=family.architecture)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_layout_holds_the_same_model(tmp_path, name):
    checkpoints = {layout: open_checkpoint(path) for layout, path in write_layouts(tmp_path, name).items()}
    first = checkpoints.pop("huggingface")
    expected = dict(first.weights(np.float32))
    for layout, checkpoint in checkpoints.items():
        assert replace(checkpoint.config, rope_scaling=None) == replace(first.config, rope_scaling=None), layout
        assert_same_scaling(checkpoint.config.rope_scaling, first.config.rope_scaling)
        for key, values in checkpoint.weights(np.float32):
            np.testing.assert_array_equal(values, expected[key], err_msg=f"{layout}: {key}")


def assert_same_scaling(found, expected):
    """A GGUF has float32."""
    assert (found is None) == (expected is None)
    if expected is not None:
        np.testing.assert_allclose(found.divisors, expected.divisors, rtol=1e-7)
        assert found.attention_factor == pytest.approx(expected.attention_factor, rel=1e-7)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_layout_gives_the_same_greedy_ids(tmp_path, name):
    """By the definition in NumPy, from what each reader gives: an engine gets nothing else of a file.

    Logits that have their maximum at the next token all along a greedy text would have written that text.
    """
    models = {layout: read_model(path) for layout, path in write_layouts(tmp_path, name).items()}
    assert len(models) == (4 if name == "tiny_llama2" else 3)
    config, weights = models["huggingface"]
    text = [5, 7, 11, 3]
    while len(text) < 40:  # past the context before scaling
        text.append(int(decoder_logits(config, weights, text)[-1].argmax()))
    assert len(set(text[4:])) > 2, "a token that repeats itself would say little"
    first = decoder_logits(config, weights, text)
    for layout, (other_config, other_weights) in models.items():
        logits = decoder_logits(other_config, other_weights, text)
        np.testing.assert_allclose(logits, first, atol=1e-5, err_msg=layout)
        assert logits[3:-1].argmax(axis=1).tolist() == text[4:], layout
    if config.rope_scaling is not None:
        unscaled = decoder_logits(replace(config, rope_scaling=None), weights, text)
        assert np.abs(unscaled - first).max() > 1e-2


@pytest.mark.parametrize("name", ["tiny_llama2", pytest.param("tiny_qwen3", marks=pytest.mark.slow)])
def test_the_engine_writes_the_same_greedy_ids_from_every_layout(tmp_path, name):
    written = {layout: greedy_ids(path) for layout, path in write_layouts(tmp_path, name).items()}
    expected = written["huggingface"]
    assert len(set(expected)) > 2, "a token that repeats itself would say little"
    assert written == dict.fromkeys(written, expected)


def greedy_ids(path: Path) -> list[int]:
    limits = {"max_model_len": 48, "num_kv_pages": 8, "max_num_seqs": 1, "max_chunk_tokens": 16}
    running = engine(decoder(path), few_programs=True, **limits)
    return run_alone(running, [5, 7, 11, 3], SamplingParams(temperature=0, max_tokens=36)).outputs[0].token_ids


def read_model(path: Path) -> tuple[ModelConfig, writers.Tensors]:
    checkpoint = open_checkpoint(path)
    return checkpoint.config, dict(checkpoint.weights(np.float32))
