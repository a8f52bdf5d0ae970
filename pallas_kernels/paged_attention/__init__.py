"""Attention over a paged KV cache: one meaning, several implementations."""

from pallas_kernels.paged_attention.api import decode_attention, paged_attention
from pallas_kernels.paged_attention.configs import Config
from pallas_kernels.paged_attention.implementation import Implementation, pick_implementation
from pallas_kernels.paged_attention.layer_cache import LayerCache, write

__all__ = [
    "Config",
    "Implementation",
    "LayerCache",
    "decode_attention",
    "paged_attention",
    "pick_implementation",
    "write",
]
