"""Shapes of real models by name, shared by tests, tuning and benchmarks, so that all of them mean the same numbers.

The numbers are those of each model's published ``config.json``. Chosen so that every group size and head size that the
kernels meet is there: groups of 1 to 12, heads of 8 to 256, hidden sizes that are no multiple of 128.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """What the kernels need to know of a model.

    Attributes:
        num_heads: H, query heads.
        num_kv_heads: K, key and value heads.
        head_dim: D.
        hidden_size: width of the residual stream.
        intermediate_size: width of the gated feed-forward layer.
        window: keys that a token attends to, or None for all.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    window: int | None = None

    @property
    def group(self) -> int:
        """G, query heads of one kv head."""
        return self.num_heads // self.num_kv_heads

    @property
    def matrices(self) -> Mapping[str, tuple[int, int]]:
        """(outputs, inputs) of the four matrices of a layer, those with the same input as one."""
        heads_dim, kv_dim = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        return {
            "qkv": (heads_dim + 2 * kv_dim, self.hidden_size),
            "out": (self.hidden_size, heads_dim),
            "gate_up": (2 * self.intermediate_size, self.hidden_size),
            "down": (self.hidden_size, self.intermediate_size),
        }


def _shape(heads: int, kv_heads: int, head_dim: int, hidden: int, intermediate: int, **window: int) -> ModelShape:
    return ModelShape(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        hidden_size=hidden,
        intermediate_size=intermediate,
        **window,
    )


SHAPES: Mapping[str, ModelShape] = {
    "stories260k": _shape(8, 4, 8, 64, 172),
    "smollm2-135m": _shape(9, 3, 64, 576, 1536),
    "smollm2-360m": _shape(15, 5, 64, 960, 2560),
    "smollm2-1.7b": _shape(32, 32, 64, 2048, 8192),
    "qwen2.5-0.5b": _shape(14, 2, 64, 896, 4864),
    "qwen2.5-1.5b": _shape(12, 2, 128, 1536, 8960),
    "qwen2.5-7b": _shape(28, 4, 128, 3584, 18944),
    "tinyllama-1.1b": _shape(32, 4, 64, 2048, 5632),
    "qwen3-8b": _shape(32, 8, 128, 4096, 12288),
    "llama-3.2-1b": _shape(32, 8, 64, 2048, 8192),
    "llama-3.2-3b": _shape(24, 8, 128, 3072, 8192),
    "llama-3.1-8b": _shape(32, 8, 128, 4096, 14336),
    "gemma-2-2b": _shape(8, 4, 256, 2304, 9216, window=4096),
    "h2o-danube-1.8b": _shape(32, 8, 80, 2560, 6912, window=4096),
    "phi-3-mini-4k": _shape(32, 32, 96, 3072, 8192, window=2047),
    "mistral-7b-v0.1": _shape(32, 8, 128, 4096, 14336, window=4096),
    "mistral-7b-v0.3": _shape(32, 8, 128, 4096, 14336),
    "mistral-nemo-12b": _shape(32, 8, 128, 5120, 14336),
    "mistral-small-24b": _shape(32, 8, 128, 5120, 32768),
    "mistral-large-123b": _shape(96, 8, 128, 12288, 28672),
}
