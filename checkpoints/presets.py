"""Models known by name: their shapes, from each model's published ``config.json``."""

from jaxinfer.config import ModelConfig

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
    # https://huggingface.co/Qwen/Qwen2.5-7B
    "qwen2.5-7b": ModelConfig(
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
    ),
    # https://huggingface.co/Qwen/Qwen3-8B
    "qwen3-8b": ModelConfig(
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
