"""Mistral's models."""

from dataclasses import replace

from jaxinfer.config import ModelConfig

_7B_V01 = ModelConfig(
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
)

_7B_V02 = replace(_7B_V01, rope_theta=1_000_000.0, windows=(None,) * 32)

MISTRAL: dict[str, ModelConfig] = {
    # https://huggingface.co/mistralai/Mistral-7B-v0.1
    "mistral-7b-v0.1": _7B_V01,
    # https://huggingface.co/mistralai/Mistral-7B-Instruct-v0.2
    "mistral-7b-v0.2": _7B_V02,
    # https://huggingface.co/mistralai/Mistral-7B-v0.3
    "mistral-7b-v0.3": replace(_7B_V02, vocab_size=32768),
    # https://huggingface.co/mistralai/Mistral-Nemo-Instruct-2407
    "mistral-nemo-12b": ModelConfig(
        vocab_size=131072,
        hidden_size=5120,
        intermediate_size=14336,
        num_layers=40,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        max_position_embeddings=131072,
        rope_theta=1_000_000.0,
        norm_eps=1e-5,
        tie_embeddings=False,
        windows=(None,) * 40,
    ),
    # https://huggingface.co/mistralai/Mistral-Small-24B-Instruct-2501
    "mistral-small-24b": ModelConfig(
        vocab_size=131072,
        hidden_size=5120,
        intermediate_size=32768,
        num_layers=40,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        max_position_embeddings=32768,
        rope_theta=100_000_000.0,
        norm_eps=1e-5,
        tie_embeddings=False,
        windows=(None,) * 40,
    ),
    # https://huggingface.co/mistralai/Ministral-8B-Instruct-2410. Its config.json has the window in every layer, and so
    # a context of 32,768; the model was trained for four times that with layers without a window between
    # (https://huggingface.co/docs/transformers/model_doc/ministral).
    "ministral-8b": ModelConfig(
        vocab_size=131072,
        hidden_size=4096,
        intermediate_size=12288,
        num_layers=36,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        max_position_embeddings=131072,
        rope_theta=100_000_000.0,
        norm_eps=1e-5,
        tie_embeddings=False,
        windows=(None, 32768, 32768, 32768) * 9,
    ),
}
