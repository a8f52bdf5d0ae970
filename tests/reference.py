"""The fixtures that transformers wrote, for tests: NumPy only, and no reader of ``checkpoints``, which they test.

``reference.json`` of a fixture says what each of its arrays holds and which command made it.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from jaxinfer.config import ModelConfig

FIXTURES = Path(__file__).parent / "fixtures"

TINY_MISTRAL = ModelConfig(
    vocab_size=128,
    hidden_size=48,
    intermediate_size=80,
    num_layers=3,
    num_heads=8,
    num_kv_heads=2,
    head_dim=16,
    max_position_embeddings=256,
    rope_theta=10000.0,
    norm_eps=1e-5,
    tie_embeddings=False,
    windows=(8, 8, 8),
)
"""What ``tiny_mistral`` and ``tiny_mistral_layout`` are, by hand."""

TINY_LLAMA = ModelConfig(
    vocab_size=96,
    hidden_size=36,
    intermediate_size=56,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    max_position_embeddings=128,
    rope_theta=500000.0,
    norm_eps=1e-6,
    tie_embeddings=True,
    windows=(None, None),
)
"""What ``tiny_llama_sharded`` is, by hand."""

TINY_WINDOWS = ModelConfig(
    vocab_size=128,
    hidden_size=48,
    intermediate_size=64,
    num_layers=4,
    num_heads=8,
    num_kv_heads=2,
    head_dim=8,
    max_position_embeddings=256,
    rope_theta=10000.0,
    norm_eps=1e-5,
    tie_embeddings=False,
    windows=(12, 12, 12, 12),
)
"""What ``tiny_windows`` is, by hand."""

TINY_TWO_GROUPS = replace(TINY_WINDOWS, windows=(None, 12, None, 12))
"""What ``tiny_two_groups`` is, by hand."""

STORIES = ModelConfig(
    vocab_size=512,
    hidden_size=64,
    intermediate_size=172,
    num_layers=5,
    num_heads=8,
    num_kv_heads=4,
    head_dim=8,
    max_position_embeddings=512,
    rope_theta=10000.0,
    norm_eps=1e-5,
    tie_embeddings=True,
    windows=(None,) * 5,
)
"""What ``stories260K-hf`` of the shared data is, by hand."""


@dataclass(frozen=True)
class Reference:
    """One fixture: its folder (the checkpoint's too, where there is one), its arrays, and its json."""

    folder: Path
    arrays: dict[str, np.ndarray]
    info: dict[str, Any]


def load_reference(name: str) -> Reference:
    """The fixture ``name``, a folder of ``tests/fixtures`` with arrays (``tiny_mistral_layout`` has none)."""
    folder = FIXTURES / name
    with np.load(folder / "reference.npz") as arrays:
        return Reference(folder, dict(arrays), json.loads((folder / "reference.json").read_text(encoding="utf-8")))


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Every tensor of one file: 8 bytes of header length, the header in json, then the bytes it points into."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    dtypes = {"F32": np.dtype("<f4"), "BF16": np.dtype(ml_dtypes.bfloat16)}
    tensors = {}
    for name, entry in json.loads(content[8:start]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            values = np.frombuffer(content[start + begin : start + end], dtypes[entry["dtype"]])
            tensors[name] = values.reshape(entry["shape"])
    return tensors


def read_hf_weights(folder: Path, config: ModelConfig) -> dict[str, np.ndarray]:
    """The weights of a checkpoint in the Hugging Face layout, under the names of ``jaxinfer.weights``."""
    source: dict[str, np.ndarray] = {}
    for path in sorted(folder.glob("*.safetensors")):
        source |= read_safetensors(path)
    weights = {"embedding": source["model.embed_tokens.weight"], "final_norm": source["model.norm.weight"]}
    for i in range(config.num_layers):
        theirs, ours = f"model.layers.{i}.", f"layers.{i}."
        attention, mlp = theirs + "self_attn.", theirs + "mlp."
        weights[ours + "attention_norm"] = source[theirs + "input_layernorm.weight"]
        weights[ours + "qkv"] = np.concatenate([source[f"{attention}{x}_proj.weight"] for x in "qkv"])
        if config.qkv_bias:
            weights[ours + "qkv_bias"] = np.concatenate([source[f"{attention}{x}_proj.bias"] for x in "qkv"])
        if config.qk_norm:
            weights |= {f"{ours}{x}_norm": source[f"{attention}{x}_norm.weight"] for x in "qk"}
        weights[ours + "attention_out"] = source[attention + "o_proj.weight"]
        weights[ours + "mlp_norm"] = source[theirs + "post_attention_layernorm.weight"]
        weights[ours + "gate_up"] = np.concatenate([source[f"{mlp}{x}_proj.weight"] for x in ("gate", "up")])
        weights[ours + "down"] = source[mlp + "down_proj.weight"]
    if not config.tie_embeddings:
        weights["lm_head"] = source["lm_head.weight"]
    return weights
