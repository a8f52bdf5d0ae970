"""Small whole models in every layout, to be broken, and what comes of reading one."""

import os
from pathlib import Path

import numpy as np
import pytest

from jaxinfer.loading import open_model
from tests.checkpoints import writers
from tests.checkpoints.writers import known_weights
from tests.vocabularies import write_byte_level_json

FILES = {
    "huggingface": ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"],
    "shards": ["config.json", "model.safetensors.index.json", "model-00002-of-00003.safetensors"],
    "mistral": ["params.json", "consolidated.safetensors"],
    "gguf": ["m.gguf"],
}
FILE_OF_LAYOUT = [(layout, file) for layout, files in FILES.items() for file in files]

GGUF_METADATA = writers.GGUF_METADATA | {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": ["<s>", "</s>", "ab", *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRS"],
    "tokenizer.ggml.token_type": [3, 3, *[1] * 46],
    "tokenizer.ggml.merges": ["a b"],
}
NORM = "model.norm.weight"
"""A tensor of the Hugging Face layout."""


def write_models(root: Path) -> Path:
    """A folder for each layout."""
    weights = known_weights()
    writers.write_hf(root / "huggingface", writers.hf_tensors(weights))
    writers.write_json(root / "huggingface" / "generation_config.json", {"eos_token_id": 2})
    writers.write_hf_shards(root / "shards", writers.hf_tensors(weights))
    writers.write_mistral(root / "mistral", writers.mistral_tensors(weights))
    for layout in ("huggingface", "shards", "mistral"):
        write_byte_level_json(root / layout)
    (root / "gguf").mkdir()
    writers.write_gguf(root / "gguf" / "m.gguf", writers.gguf_tensors(weights), GGUF_METADATA)
    return root


def read(folder: Path) -> None:
    """Opens the model in the folder and reads all its weights."""
    file = folder / "m.gguf"
    model = open_model(file if os.path.lexists(file) else folder)
    assert len(list(model.weights(np.dtype(np.float32), {}))) == 15


def fault_of(folder: Path) -> str:
    """What reading the model in the folder ends with, which must be a ValueError."""
    with pytest.raises(ValueError) as caught:
        read(folder)
    return str(caught.value)


def replace(file: Path, content: bytes) -> None:
    """Puts ``content`` in place of a file, which must be a new one: the old one may still be mapped."""
    file.unlink()
    file.write_bytes(content)
