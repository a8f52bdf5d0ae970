"""Models known by name, and random weights for them or for any other shape.

Random weights stand in for a checkpoint wherever only shapes and speed matter, so they come with the same contract.
"""

import hashlib
from collections.abc import Iterator

import numpy as np

from jaxinfer.config import ModelConfig
from jaxinfer.weights import weight_shapes

PRESETS: dict[str, ModelConfig] = {
    # https://huggingface.co/mistralai/Mistral-7B-v0.1
    "mistral-7b-v0.1": ModelConfig(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=14336,
        num_layers=32,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        max_position_embeddings=32768,
        rope_theta=10_000.0,
        norm_eps=1e-5,
        tie_embeddings=False,
        windows=(4096,) * 32,
    ),
    # https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
    "smollm2-135m": ModelConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        max_position_embeddings=8192,
        rope_theta=100_000.0,
        norm_eps=1e-5,
        tie_embeddings=True,
        windows=(None,) * 30,
    ),
}

_DRAWN_ROWS = 1024


def random_weights(config: ModelConfig, dtype: np.dtype | type, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (name, array) for each of ``weight_shapes(config)``, in that order, in ``dtype``.

    Matrices are normal with variance 1 / (size of the input axis), so that every product keeps the scale of what goes
    in and logits stay near 1; norms are ones. A weight depends on ``seed`` and its own name and shape only.

    Args:
        config: the shape of the model.
        dtype: any floating type.
        seed: any whole number.
    """
    for name, shape in weight_shapes(config).items():
        if len(shape) == 1:
            yield name, np.ones(shape, dtype)
        else:
            yield name, _draw(shape, np.dtype(dtype), f"{seed}/{name}")


def _draw(shape: tuple[int, ...], dtype: np.dtype, key: str) -> np.ndarray:
    """Draws in float32 some rows at a time, so that a bfloat16 matrix does not cost three times its size."""
    generator = np.random.default_rng(int.from_bytes(hashlib.sha256(key.encode()).digest()))
    scale = np.float32(shape[-1] ** -0.5)
    weight = np.empty(shape, dtype)
    for start in range(0, shape[0], _DRAWN_ROWS):
        rows = weight[start : start + _DRAWN_ROWS]
        rows[...] = generator.standard_normal(rows.shape, np.float32) * scale
    return weight
