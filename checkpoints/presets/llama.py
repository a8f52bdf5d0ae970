"""Llama 2 to 3.2, and SmolLM2, which has Llama's architecture."""

from dataclasses import replace

from checkpoints import rope_scaling
from jaxinfer.config import ModelConfig

_LLAMA_2_7B = ModelConfig(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=11008,
    num_layers=32,
    num_heads=32,
    num_kv_heads=32,
    head_dim=128,
    max_position_embeddings=4096,
    rope_theta=10_000.0,
    norm_eps=1e-5,
    tie_embeddings=False,
    windows=(None,) * 32,
)

_LLAMA_3_8B = ModelConfig(
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    max_position_embeddings=8192,
    rope_theta=500_000.0,
    norm_eps=1e-5,
    tie_embeddings=False,
    windows=(None,) * 32,
)

_LLAMA_32_1B = ModelConfig(
    vocab_size=128256,
    hidden_size=2048,
    intermediate_size=8192,
    num_layers=16,
    num_heads=32,
    num_kv_heads=8,
    head_dim=64,
    max_position_embeddings=131072,
    rope_theta=500_000.0,
    norm_eps=1e-5,
    tie_embeddings=True,
    windows=(None,) * 16,
    rope_scaling=rope_scaling.llama3(64, 500_000.0, 32, 1, 4, 8192),
)

_SMOLLM2_135M = ModelConfig(
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
)

LLAMA: dict[str, ModelConfig] = {
    # https://huggingface.co/meta-llama/Llama-2-7b-hf
    "llama-2-7b": _LLAMA_2_7B,
    # https://huggingface.co/meta-llama/Llama-2-13b-hf
    "llama-2-13b": replace(
        _LLAMA_2_7B,
        hidden_size=5120,
        intermediate_size=13824,
        num_layers=40,
        num_heads=40,
        num_kv_heads=40,
        windows=(None,) * 40,
    ),
    # https://huggingface.co/meta-llama/Meta-Llama-3-8B
    "llama-3-8b": _LLAMA_3_8B,
    # https://huggingface.co/meta-llama/Llama-3.1-8B
    "llama-3.1-8b": replace(
        _LLAMA_3_8B,
        max_position_embeddings=131072,
        rope_scaling=rope_scaling.llama3(128, 500_000.0, 8, 1, 4, 8192),
    ),
    # https://huggingface.co/meta-llama/Llama-3.2-1B
    "llama-3.2-1b": _LLAMA_32_1B,
    # https://huggingface.co/meta-llama/Llama-3.2-3B
    "llama-3.2-3b": replace(
        _LLAMA_32_1B,
        hidden_size=3072,
        num_layers=28,
        num_heads=24,
        head_dim=128,
        windows=(None,) * 28,
        rope_scaling=rope_scaling.llama3(128, 500_000.0, 32, 1, 4, 8192),
    ),
    # https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
    "smollm2-135m": _SMOLLM2_135M,
    # https://huggingface.co/HuggingFaceTB/SmolLM2-360M-Instruct
    "smollm2-360m": replace(
        _SMOLLM2_135M,
        hidden_size=960,
        intermediate_size=2560,
        num_layers=32,
        num_heads=15,
        num_kv_heads=5,
        windows=(None,) * 32,
    ),
    # https://huggingface.co/HuggingFaceTB/SmolLM2-1.7B-Instruct
    "smollm2-1.7b": replace(
        _SMOLLM2_135M,
        hidden_size=2048,
        intermediate_size=8192,
        num_layers=24,
        num_heads=32,
        num_kv_heads=32,
        rope_theta=130_000.0,
        windows=(None,) * 24,
    ),
}
