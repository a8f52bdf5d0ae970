"""Where a GGUF's texts end: where those of the same model's folder do, though its keys do not name all those tokens."""

from collections.abc import Mapping, Sequence

import gguf
import pytest

from jaxinfer.loading import open_model
from tests.checkpoints import writers
from tests.checkpoints.writers import gguf_tensors, known_weights
from tests.vocabularies import smollm2_path

CONTROL, NORMAL, USER_DEFINED = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL, gguf.TokenType.USER_DEFINED

# Spelling and id of special tokens, and what generation_config.json has as eos_token_id:
# https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct and https://huggingface.co/Qwen/Qwen2.5-7B-Instruct.
LLAMA = {
    "<|begin_of_text|>": 128000,
    "<|end_of_text|>": 128001,
    "<|finetune_right_pad_id|>": 128004,
    "<|start_header_id|>": 128006,
    "<|end_header_id|>": 128007,
    "<|eom_id|>": 128008,
    "<|eot_id|>": 128009,
    "<|python_tag|>": 128010,
}
QWEN = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|object_ref_start|>": 151646,
    "<|fim_prefix|>": 151659,
}


def vocabulary(spellings: Sequence[str], kind: int = CONTROL) -> dict[str, object]:
    """The keys of 48 tokens, ``spellings`` the last of them."""
    plain = ["a", "b", "ab", *(chr(0x100 + i) for i in range(45 - len(spellings)))]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [*plain, *spellings],
        "tokenizer.ggml.token_type": [NORMAL] * len(plain) + [kind] * len(spellings),
        "tokenizer.ggml.merges": ["a b"],
    }


@pytest.fixture
def ends(tmp_path):
    """The spellings at which a model of the given keys ends a text."""

    def ends(keys: Mapping[str, object]) -> set[str]:
        metadata = {key: value for key, value in writers.GGUF_METADATA.items() if not key.startswith("tokenizer.")}
        path = tmp_path / "m.gguf"
        writers.write_gguf(path, gguf_tensors(known_weights()), metadata | keys)
        tokens = keys["tokenizer.ggml.tokens"]
        return {tokens[token_id] for token_id in open_model(path).eos_token_ids}

    return ends


@pytest.mark.parametrize(
    ("special", "pre", "eos", "ids"),
    [
        (LLAMA, "llama-bpe", "<|eot_id|>", [128001, 128008, 128009]),
        (QWEN, "qwen2", "<|im_end|>", [151645, 151643]),
    ],
    ids=["llama-3.1", "qwen2.5"],
)
def test_a_gguf_ends_where_the_folder_does(ends, special, pre, eos, ids):
    """The published files name ``eos_token_id`` alone."""
    keys = vocabulary(list(special)) | {"tokenizer.ggml.pre": pre}
    keys["tokenizer.ggml.eos_token_id"] = keys["tokenizer.ggml.tokens"].index(eos)
    assert {special[spelling] for spelling in ends(keys)} == set(ids)


@pytest.mark.parametrize("kind", [NORMAL, USER_DEFINED])
def test_only_a_control_token_ends_a_text_for_its_spelling(ends, kind):
    keys = vocabulary(["<|im_end|>", "</s>"], kind) | {"tokenizer.ggml.pre": "qwen2"}
    assert ends(keys | {"tokenizer.ggml.eos_token_id": 47}) == {"</s>"}


def test_smollm2_ends_at_both_of_its_tokens():
    assert open_model(smollm2_path()).eos_token_ids == (2, 0)  # <|im_end|> and <|endoftext|>
