"""The tokens that end a text, from config.json and generation_config.json."""

import re

import pytest

from checkpoints.huggingface_config import read_description
from tests.checkpoints.writers import HF_CONFIG, write_json


@pytest.fixture
def read(tmp_path):
    def read(config, generation=None):
        write_json(tmp_path / "config.json", config)
        if generation is not None:
            write_json(tmp_path / "generation_config.json", generation)
        return read_description(tmp_path)

    return read


@pytest.mark.parametrize(
    ("own", "generation", "eos"),
    [
        ({}, None, (2,)),
        ({"eos_token_id": [2, 5, 2]}, None, (2, 5)),
        ({}, {"eos_token_id": [7, 2, 7]}, (7, 2)),
        ({}, {"eos_token_id": 0}, (0,)),
        ({}, {"temperature": 0.6}, (2,)),
        ({"eos_token_id": None}, None, ()),
    ],
)
def test_end_tokens_of_the_generation_config_come_first(read, own, generation, eos):
    assert read(HF_CONFIG | own, generation).eos_token_ids == eos


@pytest.mark.parametrize("value", [48, -1, "two", [2, 48], [True]])
def test_a_bad_token_of_the_generation_config_is_named_with_its_file(read, value):
    with pytest.raises(ValueError, match=r"generation_config\.json: eos_token_id is " + re.escape(repr(value))):
        read(HF_CONFIG, {"eos_token_id": value})
