"""What a model's files give when they are put together: here the tokens that end a text."""

import pytest

from jaxinfer.loading import open_model
from tests.checkpoints.writers import HF_CONFIG, hf_tensors, known_weights, write_hf, write_json
from tests.vocabularies import write_byte_level_json


@pytest.mark.parametrize(
    ("config", "generation", "tokenizer", "ends"),
    [
        ({"eos_token_id": 5}, None, {"eos_token": "</s>"}, (5, 1)),
        ({"eos_token_id": 5}, {"eos_token_id": [7, 1, 9]}, {"eos_token": "</s>"}, (7, 1, 9)),
        ({"eos_token_id": 5}, None, {}, (5,)),
        ({"eos_token_id": None}, None, {"eos_token": "<s>"}, (0,)),
        ({"eos_token_id": None}, None, {}, ()),
    ],
)
def test_a_text_ends_where_the_checkpoint_says_and_at_the_tokenizers_eos(tmp_path, config, generation, tokenizer, ends):
    write_hf(tmp_path, hf_tensors(known_weights()), HF_CONFIG | config)
    write_byte_level_json(tmp_path, **tokenizer)
    if generation is not None:
        write_json(tmp_path / "generation_config.json", generation)
    assert open_model(tmp_path).eos_token_ids == ends
