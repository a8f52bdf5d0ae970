"""What is written in Hugging Face's layout is read again as it was."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from checkpoints import open_checkpoint
from checkpoints.huggingface_writer import write_huggingface
from checkpoints.random_weights import random_weights
from jaxinfer.config import RopeScaling
from tests.checkpoints.writers import CONFIG

FAMILIES = {
    "llama": {},
    "mistral": {"windows": (20, 20)},
    "tied": {"tie_embeddings": True},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True, "windows": (9, 9)},
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_model_comes_back(tmp_path, family, dtype):
    config = replace(CONFIG, **FAMILIES[family])
    weights = {name: np.asarray(array) for name, array in random_weights(config, dtype, seed=0)}
    write_huggingface(tmp_path / "model", config, weights.items(), (2, 5))
    checkpoint = open_checkpoint(tmp_path / "model")
    assert checkpoint.config == config
    assert checkpoint.eos_token_ids == (2, 5)
    found = dict(checkpoint.weights(dtype))
    assert list(found) == list(weights)
    assert all(np.array_equal(found[name], weights[name]) for name in weights)


@pytest.mark.parametrize(
    "change",
    [
        {"windows": (None, 4)},
        {"qkv_bias": True, "qk_norm": True},
        {"rope_scaling": RopeScaling((2.0,) * (CONFIG.head_dim // 2))},
    ],
)
def test_what_the_layout_cannot_say_is_refused_before_anything_is_written(tmp_path, change):
    with pytest.raises(ValueError, match="layout"):
        write_huggingface(tmp_path / "model", replace(CONFIG, **change), iter(()))
    assert not (tmp_path / "model").exists()
