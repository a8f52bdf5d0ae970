"""One model in every layout that its family is published in: the same shape, the same weights, the same greedy ids.

The models are those that transformers wrote into the fixtures, so that the first layout is not written here.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from checkpoints.checkpoint import open_checkpoint
from jaxinfer.config import EngineConfig, ModelConfig
from jaxinfer.engine import Engine
from jaxinfer.model import Decoder
from jaxinfer.programs import Draw
from jaxinfer.runner import ModelRunner
from jaxinfer.weights import weight_shapes
from tests.checkpoints import writers
from tests.engines import decoder, greedy, keep_one_program, run_alone
from tests.reference import FIXTURES, read_hf_weights

WITHOUT_WINDOWS = {"use_sliding_window": False, "layer_types": None}
"""A GGUF of a Qwen does not say which layers have a window."""


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


@pytest.mark.parametrize("name", ["tiny_llama2", "tiny_qwen2", "tiny_qwen3"])
def test_every_layout_gives_the_same_greedy_ids(tmp_path, name):
    """An engine serves all models of one shape: to its programs the weights are arguments."""
    paths = write_layouts(tmp_path, name)
    running = greedy_engine(decoder(paths["huggingface"]))
    found = {}
    for layout, path in paths.items():
        model = decoder(path)
        assert model.config == open_checkpoint(paths["huggingface"]).config
        running._runner.programs.weights = tuple(jax.tree.leaves(nnx.state(model)))
        found[layout] = run_alone(running, [5, 7, 11, 3], greedy(40, ignore_eos=True)).outputs[0].token_ids
    assert len(found) == (4 if name == "tiny_llama2" else 3)
    first = found["huggingface"]
    assert len(set(first)) > 2, "a token that repeats itself would say little"
    assert all(ids == first for ids in found.values())


def greedy_engine(model: Decoder) -> Engine:
    """One that takes a request at a time and has no programs but those that it needs."""
    config = EngineConfig(
        max_model_len=64,
        num_kv_pages=8,
        page_size=8,
        max_num_seqs=1,
        max_chunk_tokens=16,
        windows=model.config.group_windows,
    )
    runner = ModelRunner(model, config, kv_dtype=jnp.dtype(jnp.float32))
    keep_one_program(runner)
    for shape in runner.programs.layouts:
        runner.programs._compile_forward(*shape)
    runner.programs._compile_sample(Draw.GREEDY, config.max_num_seqs)
    runner.programs._compile_forbid(config.max_num_seqs)
    return Engine(runner, config, tokenizer=None, eos_token_ids=())
