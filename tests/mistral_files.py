"""Mistral's own tokenizers, which mistral-common brings with it, in folders as a model has them, and a small tekken."""

import base64
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from jaxinfer.tokenizers import Tokenizer, load_tokenizer

# Of each version the name that a model's folder has, and the file in the package.
FILES = {
    "v1": ("tokenizer.model.v1", "tokenizer.model.v1"),
    "v2": ("tokenizer.model.v2", "mistral_instruct_tokenizer_240216.model.v2"),
    "v3": ("tokenizer.model.v3", "mistral_instruct_tokenizer_240323.model.v3"),
    "v7": ("tokenizer.model.v7", "mistral_instruct_tokenizer_241114.model.v7"),
    "tekken": ("tekken.json", "tekken_240718.json"),
}


def packaged_file(version: str) -> Path:
    """The file of the package, which is not imported; skips the test where it is not installed."""
    spec = importlib.util.find_spec("mistral_common")
    if spec is None or spec.origin is None:
        pytest.skip("needs the package mistral-common")
    return Path(spec.origin).parent / "data" / FILES[version][1]


def mistral_folder(folder: Path, version: str, *, name: str | None = None) -> Path:
    """``folder`` with the tokenizer of ``version``, under its own name or another."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / (name or FILES[version][0])).symlink_to(packaged_file(version))
    return folder


def load_versions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """Ours, of each version, read from a folder."""
    return {name: load_tokenizer(mistral_folder(tmp_path_factory.mktemp("model"), name)) for name in FILES}


def load_oracles() -> dict[str, Any]:
    """The library's own, of each version."""
    made_by = pytest.importorskip("mistral_common.tokens.tokenizers.mistral").MistralTokenizer
    return {
        "v1": made_by.v1(),
        "v2": made_by.v2(),
        "v3": made_by.v3(),
        "v7": made_by.v7(),
        "tekken": made_by.v3(is_tekken=True),
    }


def small_tekken() -> dict[str, Any]:
    """What a ``tekken.json`` holds: every byte, three tokens more, and 20 special ones that the library knows."""
    tokens = [*(bytes([byte]) for byte in range(256)), b"he", b" w", "é".encode()]
    return {
        "config": {
            "pattern": r" ?\p{L}+|\s+|[^\s\p{L}]+",
            "num_vocab_tokens": len(tokens),
            "default_vocab_size": len(tokens) + 20,
            "default_num_special_tokens": 20,
            "version": "v3",
        },
        "vocab": [
            {"rank": i, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
            for i, token in enumerate(tokens)
        ],
    }


def write_tekken(folder: Path, content: object) -> Path:
    """``folder`` with a ``tekken.json`` that holds ``content``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tekken.json").write_text(json.dumps(content))
    return folder
