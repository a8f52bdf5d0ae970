"""The model whose parts are measured as a whole."""

from dataclasses import replace

from checkpoints import PRESETS
from jaxinfer.config import ModelConfig
from scripts.on_gpu.settings import Settings


def preset(settings: Settings) -> ModelConfig:
    """A model of 7B parameters, or a tiny one."""
    if not settings.tiny:
        return PRESETS["mistral-7b-v0.1"]
    return replace(
        PRESETS["smollm2-135m"],
        vocab_size=256,
        hidden_size=64,
        intermediate_size=96,
        num_layers=1,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        windows=(None,),
    )
