"""A packed checkpoint gives the logits of the model that its numbers, zero points and scales are.

Matrices are written to the formats' specifications from known numbers, and the oracle is the definition of the decoder
in float64. Scales have so few digits that float16 holds every offset, so nothing is rounded.
"""

import numpy as np
import pytest
from safetensors.numpy import load_file

from checkpoints import open_checkpoint
from checkpoints.quantization import on_device
from jaxinfer.config import Quantization
from jaxinfer.model import Decoder
from tests.checkpoints.packed.models import CASES, write_model
from tests.checkpoints.packed.writers import CONFIG, WRITTEN_CONFIG, gptq, gptq_config, known_matrix
from tests.checkpoints.writers import write_hf
from tests.numpy_decoder import decoder_logits
from tests.scoring import prefill_logits

TOKEN_IDS = np.random.default_rng(1).integers(3, 64, 24)
TOLERANCE = 2e-5
MATRICES = ["layers.0.qkv", "layers.0.attention_out", "layers.0.gate_up", "layers.0.down"]


@pytest.mark.parametrize("group_size", [32, 64, 128, None])
@pytest.mark.parametrize("name", CASES)
def test_what_is_kept_quantized_is_the_dequantized_model(tmp_path, name, group_size):
    truth = write_model(tmp_path, CASES[name], group_size)
    checkpoint = open_checkpoint(tmp_path)
    expected = dict.fromkeys(MATRICES, Quantization(bits=4, group_size=group_size))
    if group_size == 128:  # of the 96 inputs of this one a group of 128 is the whole row
        expected["layers.0.attention_out"] = Quantization(bits=4)
    assert checkpoint.stored == expected
    weights = {
        key: value.dequantized() if key in checkpoint.stored else value
        for key, value in checkpoint.weights(np.float32, checkpoint.stored)
    }
    for key in MATRICES:
        np.testing.assert_array_equal(weights[key], truth[key].astype(np.float32), err_msg=key)
    floats = dict(checkpoint.weights(np.float32))
    for key, value in truth.items():
        np.testing.assert_array_equal(floats[key], value.astype(np.float32), err_msg=key)
    assert 0.5 < decoder_logits(CONFIG, weights, TOKEN_IDS).std() < 5, "logits that say something"


@pytest.mark.parametrize(
    ("name", "group_size"),
    [
        ("gptq", 64),
        pytest.param("awq", 128, marks=pytest.mark.slow),
        pytest.param("compressed", 32, marks=pytest.mark.slow),
        pytest.param("compressed_symmetric", None, marks=pytest.mark.slow),
    ],
)
def test_the_decoder_on_packed_weights_gives_the_logits_of_the_dequantized_model(tmp_path, name, group_size):
    truth = write_model(tmp_path, CASES[name], group_size)
    checkpoint = open_checkpoint(tmp_path)
    assert len(checkpoint.stored) == 4
    weights = {
        key: on_device(key, value, checkpoint.stored.get(key))
        for key, value in checkpoint.weights(np.float32, checkpoint.stored)
    }
    logits = prefill_logits(Decoder(CONFIG, weights, kernels="xla"), TOKEN_IDS, chunk=24)
    expected = decoder_logits(CONFIG, truth, TOKEN_IDS)
    assert np.abs(logits - expected).max() < TOLERANCE * np.abs(expected).max()
    wrong = decoder_logits(CONFIG, truth | {"layers.0.down": np.roll(truth["layers.0.down"], 1, axis=1)}, TOKEN_IDS)
    assert np.abs(wrong - expected).max() > 0.1


def test_what_is_packed_is_what_the_file_says(tmp_path):
    """The output head may be packed, and any product of a layer may not be."""
    truth = write_model(tmp_path, CASES["gptq"], 32)
    tensors = load_file(tmp_path / "model.safetensors")
    attention = "model.layers.0.self_attn"
    for part in ("qweight", "qzeros", "scales", "g_idx"):
        del tensors[f"{attention}.k_proj.{part}"]
    q, k = 96, 48
    tensors[f"{attention}.k_proj.weight"] = truth["layers.0.qkv"][q : q + k].astype(np.float32)
    head = known_matrix((64, 160), 32)
    del tensors["lm_head.weight"]
    tensors |= {f"lm_head.{part}": np.ascontiguousarray(array) for part, array in gptq(head).items()}
    checkpoint = open_checkpoint(write_hf(tmp_path, tensors, WRITTEN_CONFIG | {"quantization_config": gptq_config(32)}))

    assert list(checkpoint.stored) == [*MATRICES[1:], "lm_head"]
    assert checkpoint.dtypes["layers.0.qkv"] == ("GPTQ INT4 by groups of 32, scales F16", "F32")
    assert checkpoint.dtypes["embedding"] == ("F32",)
    weights = dict(checkpoint.weights(np.float32, checkpoint.stored))
    np.testing.assert_array_equal(weights["layers.0.qkv"], truth["layers.0.qkv"].astype(np.float32))
    np.testing.assert_array_equal(weights["lm_head"].dequantized(), head.floats().astype(np.float32))
