"""The KV pools that a 7B model leaves on three GPUs."""

import jax.numpy as jnp

from checkpoints import PRESETS
from checkpoints.quantization import abstract_weights, num_bytes
from jaxinfer import kv_cache
from jaxinfer.config import EngineConfig
from jaxinfer.device_memory import room_for_cache
from jaxinfer.gpu_compile import TARGETS

MODEL = "mistral-7b-v0.1"
GPUS = ("A10", "A100-40", "A100-80")

_XLA_FRACTION = 0.75
"""Of a GPU's memory XLA takes so much, unless it is told otherwise."""


def num_pages(gpu: str, page_size: int = EngineConfig.page_size) -> int:
    """Pages that an engine takes on a GPU that does nothing else, with weights and cache in bfloat16."""
    model, dtype = PRESETS[MODEL], jnp.dtype(jnp.bfloat16)
    memory = {"bytes_limit": int(TARGETS[gpu].memory_bytes * _XLA_FRACTION), "bytes_in_use": 0}
    room = room_for_cache(num_bytes(abstract_weights(model, dtype, {})), None, memory)
    return room // (page_size * kv_cache.bytes_per_token(model, dtype)) - 1  # one is the dummy page
