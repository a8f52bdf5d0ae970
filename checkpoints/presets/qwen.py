"""Qwen2, Qwen2.5 and Qwen3."""

from dataclasses import replace

from jaxinfer.config import ModelConfig

_QWEN2_7B = ModelConfig(
    vocab_size=152064,
    hidden_size=3584,
    intermediate_size=18944,
    num_layers=28,
    num_heads=28,
    num_kv_heads=4,
    head_dim=128,
    max_position_embeddings=131072,
    rope_theta=1_000_000.0,
    norm_eps=1e-6,
    tie_embeddings=False,
    windows=(None,) * 28,
    qkv_bias=True,
)

_QWEN3_8B = ModelConfig(
    vocab_size=151936,
    hidden_size=4096,
    intermediate_size=12288,
    num_layers=36,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    max_position_embeddings=40960,
    rope_theta=1_000_000.0,
    norm_eps=1e-6,
    tie_embeddings=False,
    windows=(None,) * 36,
    qk_norm=True,
)

QWEN: dict[str, ModelConfig] = {
    # https://huggingface.co/Qwen/Qwen2-7B
    "qwen2-7b": _QWEN2_7B,
    # https://huggingface.co/Qwen/Qwen2.5-0.5B
    "qwen2.5-0.5b": replace(
        _QWEN2_7B,
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_layers=24,
        num_heads=14,
        num_kv_heads=2,
        head_dim=64,
        max_position_embeddings=32768,
        tie_embeddings=True,
        windows=(None,) * 24,
    ),
    # https://huggingface.co/Qwen/Qwen2.5-7B
    "qwen2.5-7b": _QWEN2_7B,
    # https://huggingface.co/Qwen/Qwen3-0.6B
    "qwen3-0.6b": replace(
        _QWEN3_8B,
        hidden_size=1024,
        intermediate_size=3072,
        num_layers=28,
        num_heads=16,
        tie_embeddings=True,
        windows=(None,) * 28,
    ),
    # https://huggingface.co/Qwen/Qwen3-8B
    "qwen3-8b": _QWEN3_8B,
}
