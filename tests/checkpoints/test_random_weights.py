"""Random weights: the contract of a checkpoint, the scale that keeps activations in range, and nothing else decides."""

from dataclasses import replace

import jax
import ml_dtypes
import numpy as np
import pytest

from checkpoints.random_weights import random_weights
from jaxinfer.config import Quantization
from jaxinfer.weights import formats_of, weight_shapes
from pallas_kernels.quantized_matmul import Int4Weight, Int8Weight, dequantize
from tests.checkpoints.writers import CONFIG

QUANTIZATIONS = [Quantization(bits=8), Quantization(bits=4, group_size=64), Quantization(bits=4)]


def same(a, b):
    return all(map(np.array_equal, jax.tree.leaves(a), jax.tree.leaves(b)))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("biased", [True, False])
def test_random_weights_keep_the_contract(dtype, tied, biased):
    config = replace(CONFIG, tie_embeddings=tied, qkv_bias=biased, qk_norm=biased)
    weights = dict(random_weights(config, dtype, seed=0))
    assert {name: array.shape for name, array in weights.items()} == weight_shapes(config)
    assert list(weights) == list(weight_shapes(config))
    assert all(array.dtype == dtype for array in weights.values())


@pytest.mark.parametrize("quantization", [None, *QUANTIZATIONS], ids=str)
def test_scale_is_that_of_the_input_axis(quantization):
    config = replace(CONFIG, hidden_size=256, intermediate_size=1000, qkv_bias=True)
    for name, weight in random_weights(config, np.float32, 3, formats_of(config, quantization)):
        matrix = np.asarray(dequantize(weight, np.dtype(np.float32)) if len(weight.shape) > 1 else weight)
        if name.endswith("norm"):
            assert (matrix == 1).all(), name
        else:
            assert abs(matrix.mean()) < 0.1 * matrix.std(), name
            expected = matrix.shape[1] ** -0.5 if matrix.ndim > 1 else 1
            np.testing.assert_allclose(matrix.std(), expected, rtol=0.05 if matrix.ndim > 1 else 0.2, err_msg=name)


@pytest.mark.parametrize("quantization", QUANTIZATIONS, ids=str)
def test_matrices_of_layers_are_drawn_in_their_format(quantization):
    config = replace(CONFIG, hidden_size=256, intermediate_size=1000)
    formats = formats_of(config, quantization)
    for name, weight in random_weights(config, np.float32, 3, formats):
        if name not in formats:
            assert weight.dtype == np.float32
        elif quantization.bits == 8:
            assert isinstance(weight, Int8Weight)
            values = np.asarray(weight.values)
            assert (values.min(), values.max()) == (-127, 127)
            assert not values[:, weight.num_inputs :].any()
        else:
            assert isinstance(weight, Int4Weight)
            assert weight.group_size == (quantization.group_size or 2 * weight.values.shape[1])
            assert set(np.unique(np.asarray(weight.values) & 15)) == set(range(16))


@pytest.mark.parametrize("quantization", [None, *QUANTIZATIONS], ids=str)
def test_a_weight_depends_on_the_seed_and_its_name_only(quantization):
    formats = formats_of(CONFIG, quantization)
    weights = dict(random_weights(CONFIG, np.float32, 1, formats))
    again = dict(random_weights(replace(CONFIG, num_layers=1, windows=(None,)), np.float32, 1, formats))
    assert same(weights["layers.0.qkv"], again["layers.0.qkv"])
    assert same(weights["lm_head"], again["lm_head"])
    assert not same(weights["layers.0.qkv"], weights["layers.1.qkv"])
    assert not same(weights["lm_head"], weights["embedding"])
    assert not same(weights["layers.0.qkv"], dict(random_weights(CONFIG, np.float32, 2, formats))["layers.0.qkv"])


def test_bfloat16_is_float32_rounded():
    for (name, half), (_, full) in zip(
        random_weights(CONFIG, ml_dtypes.bfloat16, seed=-5), random_weights(CONFIG, np.float32, seed=-5), strict=True
    ):
        np.testing.assert_array_equal(half, full.astype(ml_dtypes.bfloat16), err_msg=name)
