"""AutoGPTQ saves a bias of zeros for every product, whether the model has one or not."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from checkpoints import open_checkpoint
from tests.checkpoints.packed import writers
from tests.checkpoints.packed.models import CASES, write_model
from tests.checkpoints.writers import write_hf

QWEN = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}


def write_with_biases(folder, value, **others):
    """A model whose every product has a bias of this value."""
    write_model(folder, CASES["gptq"], 64)
    tensors = load_file(folder / "model.safetensors")
    for _, module, shape in writers.layer_matrices():
        tensors[f"{module}.bias"] = np.full(shape[0], value, np.float16)
    config = json.loads((folder / "config.json").read_text())
    return write_hf(folder, tensors, config | others)


def test_zeros_are_passed_over_in_a_model_without_biases(tmp_path):
    assert not any("bias" in name for name in open_checkpoint(write_with_biases(tmp_path, 0)).dtypes)


def test_zeros_are_taken_in_a_model_with_biases(tmp_path):
    checkpoint = open_checkpoint(write_with_biases(tmp_path, 0, **QWEN))
    assert not dict(checkpoint.weights(np.float32))["layers.0.qkv_bias"].any()


def test_other_biases_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"unexpected: model\.layers\.0\.mlp\.down_proj\.bias"):
        open_checkpoint(write_with_biases(tmp_path, 1))
