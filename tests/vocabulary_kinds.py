"""Vocabularies of every kind by name, for tests of what must hold whatever file a vocabulary came from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jaxinfer.tokenizers import Tokenizer, load_tokenizer
from tests.mistral_files import mistral_folder, small_tekken, write_tekken
from tests.vocabularies import (
    smollm2_path,
    train_sentencepiece,
    write_byte_fallback_json,
    write_byte_level_json,
    write_gguf,
    write_gguf_spm,
)

_WRITTEN: dict[str, Callable[[Path], Path]] = {
    "spm as trained by default": train_sentencepiece,
    "smollm2": lambda folder: smollm2_path(),
    "byte-level json": write_byte_level_json,
    "byte-fallback json": lambda folder: write_byte_fallback_json(folder, decoder="sequence"),
    "metaspace json": lambda folder: write_byte_fallback_json(folder, decoder="metaspace"),
    "json with a gap": lambda folder: write_byte_fallback_json(folder, decoder="sequence", gap=7),
    "byte-level gguf": lambda folder: write_gguf(folder / "model.gguf"),
    "small spm in gguf": lambda folder: write_gguf_spm(folder / "model.gguf"),
    "tekken": lambda folder: write_tekken(folder, small_tekken()),
    "mistral v1": lambda folder: mistral_folder(folder, "v1"),
    "mistral v2": lambda folder: mistral_folder(folder, "v2"),
    "mistral v3": lambda folder: mistral_folder(folder, "v3"),
    "mistral v7": lambda folder: mistral_folder(folder, "v7"),
    "mistral tekken": lambda folder: mistral_folder(folder, "tekken"),
}
_IN_SHARED_DATA = {
    "spm": "stories260K-hf",
    "spm in gguf": "tokenizers/ggml-vocab-llama-spm.gguf",
    "qwen2 in gguf": "tokenizers/ggml-vocab-qwen2.gguf",
}


def tokenizer_of_kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """The tokenizer of the kind that is the fixture's parameter; skips where its file is not to be had."""
    kind = request.param
    if kind in _IN_SHARED_DATA:
        return load_tokenizer(request.getfixturevalue("shared_data") / _IN_SHARED_DATA[kind])
    return load_tokenizer(_WRITTEN[kind](tmp_path_factory.mktemp("vocabulary")))
