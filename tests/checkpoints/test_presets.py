"""Models by name, and random weights."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from checkpoints import PRESETS
from checkpoints.random_weights import random_weights
from jaxinfer.weights import weight_shapes
from tests.checkpoints.writers import CONFIG


def num_parameters(config):
    return sum(int(np.prod(shape)) for shape in weight_shapes(config).values())


def test_presets_have_the_sizes_that_their_authors_state():
    assert num_parameters(PRESETS["mistral-7b-v0.1"]) == 7_241_732_096
    assert num_parameters(PRESETS["smollm2-135m"]) == 134_515_008


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("tied", [True, False])
def test_random_weights_keep_the_contract(dtype, tied):
    config = replace(CONFIG, tie_embeddings=tied)
    weights = dict(random_weights(config, dtype, seed=0))
    assert {name: array.shape for name, array in weights.items()} == weight_shapes(config)
    assert list(weights) == list(weight_shapes(config))
    assert all(array.dtype == dtype for array in weights.values())


def test_scale_is_that_of_the_input_axis():
    config = replace(CONFIG, hidden_size=256, intermediate_size=1024)
    for name, array in random_weights(config, np.float32, seed=3):
        if array.ndim == 1:
            assert (array == 1).all(), name
        else:
            assert abs(array.mean()) < 0.1 * array.std(), name
            np.testing.assert_allclose(array.std(), array.shape[1] ** -0.5, rtol=0.05, err_msg=name)


def test_a_weight_depends_on_the_seed_and_its_name_only():
    weights = dict(random_weights(CONFIG, np.float32, seed=1))
    again = dict(random_weights(replace(CONFIG, num_layers=1, windows=(None,)), np.float32, seed=1))
    np.testing.assert_array_equal(weights["layers.0.qkv"], again["layers.0.qkv"])
    np.testing.assert_array_equal(weights["lm_head"], again["lm_head"])
    assert not np.array_equal(weights["layers.0.qkv"], weights["layers.1.qkv"])
    assert not np.array_equal(weights["lm_head"], weights["embedding"])
    assert not np.array_equal(weights["embedding"], dict(random_weights(CONFIG, np.float32, seed=2))["embedding"])


def test_bfloat16_is_float32_rounded():
    for (name, half), (_, full) in zip(
        random_weights(CONFIG, ml_dtypes.bfloat16, seed=-5), random_weights(CONFIG, np.float32, seed=-5), strict=True
    ):
        np.testing.assert_array_equal(half, full.astype(ml_dtypes.bfloat16), err_msg=name)
