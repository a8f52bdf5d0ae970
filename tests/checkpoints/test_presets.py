"""Models known by name."""

import math
from dataclasses import replace

import pytest

from checkpoints import PRESETS
from checkpoints.huggingface_config import read_description
from jaxinfer.weights import weight_shapes
from pallas_kernels.shapes import SHAPES
from tests.checkpoints.published import PUBLISHED
from tests.checkpoints.writers import write_json

# As stated by each model's authors, or the total of the headers of its published safetensors files.
PARAMETERS = {
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.2": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "ministral-8b": 8_019_808_256,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "qwen2-7b": 7_615_616_512,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_the_sizes_that_their_authors_state(name):
    assert sum(map(math.prod, weight_shapes(PRESETS[name]).values())) == PARAMETERS[name]


# Ministral's model card ("Ragged (128k,32k,32k,32k)", trained for 128k) and the documentation of transformers (a layer
# of full attention, then three with a window), against its config.json.
BESIDE_THE_CONFIG = {"ministral-8b": {"windows": (None, 32768, 32768, 32768) * 9, "max_position_embeddings": 131072}}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_what_their_authors_files_say(tmp_path, name):
    write_json(tmp_path / "config.json", PUBLISHED[name])
    read = read_description(tmp_path).config
    assert PRESETS[name] == replace(read, **BESIDE_THE_CONFIG.get(name, {}))


def test_the_file_of_ministral_has_the_window_in_every_layer(tmp_path):
    write_json(tmp_path / "config.json", PUBLISHED["ministral-8b"])
    read = read_description(tmp_path).config
    assert (read.windows, read.max_position_embeddings) == ((32768,) * 36, 32768)


@pytest.mark.parametrize("name", [name for name in PRESETS if name in SHAPES])
def test_the_shapes_that_kernels_are_tuned_for_are_those_of_the_presets(name):
    weights = weight_shapes(PRESETS[name])
    places = {"qkv": "qkv", "out": "attention_out", "gate_up": "gate_up", "down": "down"}
    assert SHAPES[name].matrices == {place: weights[f"layers.0.{weight}"] for place, weight in places.items()}
