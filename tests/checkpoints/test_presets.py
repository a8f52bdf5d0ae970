"""Models known by name."""

import math

import pytest

from checkpoints import PRESETS
from jaxinfer.weights import weight_shapes
from pallas_kernels.shapes import SHAPES

# As stated by each model's authors, or the total of the headers of its published safetensors files.
PARAMETERS = {
    "mistral-7b-v0.1": 7_241_732_096,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "smollm2-135m": 134_515_008,
}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_the_sizes_that_their_authors_state(name):
    assert sum(map(math.prod, weight_shapes(PRESETS[name]).values())) == PARAMETERS[name]


@pytest.mark.parametrize("name", [name for name in PRESETS if name in SHAPES])
def test_the_shapes_that_kernels_are_tuned_for_are_those_of_the_presets(name):
    weights = weight_shapes(PRESETS[name])
    places = {"qkv": "qkv", "out": "attention_out", "gate_up": "gate_up", "down": "down"}
    assert SHAPES[name].matrices == {place: weights[f"layers.0.{weight}"] for place, weight in places.items()}
