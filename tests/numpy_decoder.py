"""The decoder from its definition, in NumPy and float64: the second oracle, slow and plain on purpose.

Everything happens for one whole sequence at once, without a cache and without any code of the engine, so that what a
step, a page or a window does wrong cannot be wrong here in the same way.
"""

from collections.abc import Sequence

import numpy as np

from jaxinfer.config import ModelConfig


def decoder_logits(
    config: ModelConfig, weights: dict[str, np.ndarray], token_ids: Sequence[int] | np.ndarray
) -> np.ndarray:
    """Logits of every position of one sequence.

    Args:
        config: the model's shape.
        weights: named and shaped as ``jaxinfer.weights.weight_shapes`` says; any float type.
        token_ids: T ids; the first is at position 0.

    Returns:
        float64 [T, V].
    """
    w = {name: np.asarray(values).astype(np.float64) for name, values in weights.items()}
    x = w["embedding"][np.asarray(token_ids)]  # [T, E]
    for i, window in enumerate(config.windows):
        layer = f"layers.{i}."
        x = x + attention(config, window, w, layer, rms_norm(x, w[layer + "attention_norm"], config.norm_eps))
        x = x + feed_forward(w, layer, rms_norm(x, w[layer + "mlp_norm"], config.norm_eps))
    head = w["embedding"] if config.tie_embeddings else w["lm_head"]
    return rms_norm(x, w["final_norm"], config.norm_eps) @ head.T


def rms_norm(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
    """x / sqrt(mean(x^2) + eps) * gain over the last axis."""
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps) * gain


def attention(
    config: ModelConfig, window: int | None, w: dict[str, np.ndarray], layer: str, x: np.ndarray
) -> np.ndarray:
    """What the attention of a layer adds, from its normed inputs [T, E]."""
    num_tokens, num_heads, num_kv_heads, dim = len(x), config.num_heads, config.num_kv_heads, config.head_dim
    heads = x @ w[layer + "qkv"].T
    if config.qkv_bias:
        heads = heads + w[layer + "qkv_bias"]
    heads = heads.reshape(num_tokens, num_heads + 2 * num_kv_heads, dim)
    q, k, v = np.split(heads, [num_heads, num_heads + num_kv_heads], axis=1)
    if config.qk_norm:
        q = rms_norm(q, w[layer + "q_norm"], config.norm_eps)
        k = rms_norm(k, w[layer + "k_norm"], config.norm_eps)
    q, k = _rotate(q, config), _rotate(k, config)
    out = np.empty_like(q)
    for t in range(num_tokens):
        first = 0 if window is None else max(0, t + 1 - window)
        for h in range(num_heads):
            kv = h // (num_heads // num_kv_heads)
            scores = k[first : t + 1, kv] @ q[t, h] / np.sqrt(dim)
            shares = np.exp(scores - scores.max())
            out[t, h] = shares / shares.sum() @ v[first : t + 1, kv]
    return out.reshape(num_tokens, num_heads * dim) @ w[layer + "attention_out"].T


def _rotate(x: np.ndarray, config: ModelConfig) -> np.ndarray:
    """Turn the pair (i, i + D / 2) at position t by t / theta^(2 i / D); ``x`` is [T, heads, D].

    Scaled angles: the angle of pair i is divided by divisor i, and the pair is multiplied by the attention factor.
    """
    num_tokens, _, dim = x.shape
    frequencies, factor = config.rope_theta ** (-2 * np.arange(dim // 2) / dim), 1.0
    if config.rope_scaling is not None:
        frequencies, factor = frequencies / config.rope_scaling.divisors, config.rope_scaling.attention_factor
    turn = factor * np.exp(1j * np.arange(num_tokens)[:, None] * frequencies)[:, None, :]  # [T, 1, D / 2]
    turned = (x[..., : dim // 2] + 1j * x[..., dim // 2 :]) * turn
    return np.concatenate([turned.real, turned.imag], axis=-1)


def feed_forward(w: dict[str, np.ndarray], layer: str, x: np.ndarray) -> np.ndarray:
    """What the feed-forward of a layer adds, from its normed inputs [..., E]."""
    gate, up = np.split(x @ w[layer + "gate_up"].T, 2, axis=-1)
    return (gate / (1 + np.exp(-gate)) * up) @ w[layer + "down"].T
