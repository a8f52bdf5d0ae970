"""A checkpoint that the library ``compressed-tensors`` wrote, against what that library makes of it."""

import numpy as np
import pytest

from checkpoints import open_checkpoint
from checkpoints.quantization import on_device
from jaxinfer.config import Quantization
from jaxinfer.model import Decoder
from tests.numpy_decoder import decoder_logits
from tests.reference import load_reference
from tests.scoring import prefill_logits

INT4, INT8 = Quantization(bits=4, group_size=32), Quantization(bits=8)


def test_logits_are_those_of_the_library():
    reference = load_reference("tiny_compressed")
    checkpoint = open_checkpoint(reference.folder)
    layers = {"qkv": INT4, "attention_out": INT4, "gate_up": INT8, "down": INT8}
    assert checkpoint.stored == {f"layers.{i}.{name}": kept for i in range(2) for name, kept in layers.items()}
    floats = dict(checkpoint.weights(np.float32))
    logits = decoder_logits(checkpoint.config, floats, reference.arrays["token_ids"])
    assert np.abs(logits - reference.arrays["logits"]).max() < 2e-5
    shifted = floats | {"layers.1.qkv": np.roll(floats["layers.1.qkv"], 1, axis=1)}
    assert np.abs(decoder_logits(checkpoint.config, shifted, reference.arrays["token_ids"]) - logits).max() > 0.1


def test_what_is_kept_differs_by_the_rounding_of_offsets_alone():
    """Products of bfloat16 scales and zero points may have one digit more than a float16."""
    reference = load_reference("tiny_compressed")
    checkpoint = open_checkpoint(reference.folder)
    floats = dict(checkpoint.weights(np.float32))
    for name, weight in checkpoint.weights(np.float32, checkpoint.stored):
        if checkpoint.stored.get(name) == INT8:
            np.testing.assert_array_equal(weight.dequantized(), floats[name])
        elif name in checkpoint.stored:
            steps = np.repeat(weight.scales.astype(np.float32), 32, axis=1)
            assert 0 < (np.abs(weight.dequantized() - floats[name]) / steps).max() < 15 / 2**11


@pytest.mark.slow
def test_the_decoder_on_what_is_kept_gives_nearly_the_same_logits():
    """Off by what the rounding of offsets does, a thousandth of the logits' spread of 2."""
    reference = load_reference("tiny_compressed")
    checkpoint = open_checkpoint(reference.folder)
    stored = list(checkpoint.weights(np.float32, checkpoint.stored))
    weights = {name: on_device(name, weight, checkpoint.stored.get(name)) for name, weight in stored}
    token_ids = reference.arrays["token_ids"]
    logits = prefill_logits(Decoder(checkpoint.config, weights, kernels="xla"), token_ids, chunk=24)
    rounded = {name: weight.dequantized() if name in checkpoint.stored else weight for name, weight in stored}
    np.testing.assert_allclose(logits, decoder_logits(checkpoint.config, rounded, token_ids), atol=2e-5)
    assert np.abs(logits - reference.arrays["logits"]).mean() < 0.002
    assert np.abs(logits - reference.arrays["logits"]).max() < 0.01
