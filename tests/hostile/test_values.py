"""Values of any kind in place of a configuration's."""

import json
from pathlib import Path

import pytest

from tests.checkpoints import writers
from tests.checkpoints.writers import known_weights
from tests.hostile.models import FILES, GGUF_METADATA, read

pytestmark = pytest.mark.timeout(20)

JSON_VALUES = [
    *("x", "1" * 9999, [], [[]], {"a": {"b": 1}}, True),
    *(-1, 0, 1.5, 2**31, 2**64, 10**400, 1e308, float("nan"), float("-inf")),
]
MORE_KEYS = {
    "huggingface": [
        *("sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "rope_scaling"),
        *("rope_parameters", "quantization_config", "transformers_version", "original_max_position_embeddings"),
    ],
    "mistral": ["sliding_window", "_sliding_window", "quantization", "moe", "lora", "yarn", "vision_encoder"],
}


def ends_well(folder: Path) -> None:
    """With the model, or with an error that says where."""
    try:
        read(folder)
    except ValueError as error:
        told = str(error)
    else:
        return
    assert str(folder) in told
    assert len(told) < 2000


@pytest.mark.parametrize(
    ("layout", "key"),
    [("huggingface", key) for key in [*writers.HF_CONFIG, *MORE_KEYS["huggingface"]]]
    + [("mistral", key) for key in [*writers.MISTRAL_PARAMS, *MORE_KEYS["mistral"]]],
)
def test_any_value_of_a_config_gives_a_model_or_an_error(copy, layout, key):
    file = copy(layout) / FILES[layout][0]
    values = json.loads(file.read_bytes())
    for value in JSON_VALUES:
        file.write_text(json.dumps(values | {key: value}))
        ends_well(file.parent)


GGUF_KEYS = [*(key for key in GGUF_METADATA if key.startswith("llama.")), "llama.attention.sliding_window_pattern"]


@pytest.mark.parametrize("key", GGUF_KEYS)
def test_any_value_of_a_ggufs_metadata_gives_a_model_or_an_error(tmp_path, key):
    tensors = writers.gguf_tensors(known_weights())
    for number, value in enumerate(["x", [7], 0, 2**32 - 1, 1.5, float("nan")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        writers.write_gguf(folder / "m.gguf", tensors, GGUF_METADATA | {key: value})
        ends_well(folder)
