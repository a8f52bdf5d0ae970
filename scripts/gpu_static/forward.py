"""The forward programs of whole models that are compiled for every target, from shapes alone: no weight is made."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from checkpoints import PRESETS
from checkpoints.quantization import abstract_weights, num_bytes
from jaxinfer import kv_cache
from jaxinfer.config import EngineConfig, ModelConfig, Quantization
from jaxinfer.gpu_compile import GpuTarget, ProgramReport, compile_for
from jaxinfer.kv_cache import KVCache
from jaxinfer.model import Decoder
from jaxinfer.programs import Programs
from jaxinfer.weights import formats_of
from pallas_kernels.paged_attention import Implementation

_DTYPE = jnp.dtype(jnp.bfloat16)
_MAX_NUM_SEQS = 16
_PAGE_SIZE, _NUM_KV_PAGES = 16, 2048


@dataclass(frozen=True, kw_only=True)
class Step:
    """One forward program (B, C) of a model with activations in bfloat16.

    Attributes:
        model: name of a preset.
        kernels: the implementation of attention and products.
        quantization: of the layers' matrices; None: they are bfloat16.
        quantize_embeddings: whether it is that of embedding and output head too.
        int8_cache: whether the cache is int8 with scales, and not bfloat16.
        num_rows, num_chunk_tokens: B and C.
        num_layers: of the preset's, how many; the others are like them.
    """

    model: str
    kernels: Implementation
    quantization: Quantization | None = None
    quantize_embeddings: bool = False
    int8_cache: bool = False
    num_rows: int = 16
    num_chunk_tokens: int = 0
    num_layers: int = 32

    @property
    def label(self) -> str:
        """What the program is, in a few words."""
        weights = "bfloat16" if self.quantization is None else f"int{self.quantization.bits}"
        weights += ", embeddings too" if self.quantize_embeddings else ""
        name = f"{self.model}, {self.num_layers} layers, B {self.num_rows}, C {self.num_chunk_tokens}"
        cache = "int8" if self.int8_cache else "bfloat16"
        return f"{name} | {weights} | {cache} | {self.kernels}"

    @property
    def config(self) -> ModelConfig:
        """The model's shape."""
        preset = PRESETS[self.model]
        return replace(preset, num_layers=self.num_layers, windows=preset.windows[: self.num_layers])

    @property
    def cache_bytes(self) -> int:
        """Bytes of the pages of all layers, and of their scales."""
        return sum(array.size * array.dtype.itemsize for array in jax.tree.leaves(self._cache().layers))

    @property
    def layer_weight_bytes(self) -> int:
        """Bytes of the smallest matrix of a layer: a copy of a weight would be at least so large."""
        matrices = formats_of(self.config, Quantization(bits=8))
        return min(num_bytes(weight) for name, weight in self._weights().items() if name in matrices)

    def compile(self, target: GpuTarget) -> ProgramReport:
        """What comes out for ``target``."""
        limits = EngineConfig(
            max_model_len=8192,
            max_num_seqs=_MAX_NUM_SEQS,
            max_chunk_tokens=max(self.num_chunk_tokens, EngineConfig.block_q),
            page_size=_PAGE_SIZE,
            num_kv_pages=_NUM_KV_PAGES,
            windows=self.config.group_windows,
        )
        forward, arguments = self.programs(limits).forward_call(self.num_rows, self.num_chunk_tokens)
        return compile_for(target, forward, *arguments).report

    def programs(self, limits: EngineConfig) -> Programs:
        """Those of an engine with this model, none of them compiled."""
        return Programs(Decoder(self.config, self._weights(), kernels=self.kernels), limits, self._cache())

    def _weights(self) -> dict[str, Any]:
        formats = formats_of(self.config, self.quantization, embeddings=self.quantize_embeddings)
        return abstract_weights(self.config, _DTYPE, formats)

    def _cache(self) -> KVCache:
        return jax.eval_shape(
            lambda: kv_cache.allocate(
                self.config,
                num_pages=(_NUM_KV_PAGES,),
                page_size=_PAGE_SIZE,
                max_num_seqs=_MAX_NUM_SEQS,
                dtype=jnp.dtype(jnp.int8) if self.int8_cache else _DTYPE,
            )
        )


def steps() -> Iterator[Step]:
    """All forward programs, in the order of the table."""
    int8, int4 = Quantization(bits=8), Quantization(bits=4, group_size=64)
    for quantization in (None, int8, int4):
        for num_chunk_tokens in (0, 512):
            yield Step(
                model="mistral-7b-v0.1",
                kernels="pallas",
                quantization=quantization,
                num_chunk_tokens=num_chunk_tokens,
            )
    for num_chunk_tokens in (0, 512):
        yield Step(
            model="mistral-7b-v0.1",
            kernels="pallas",
            int8_cache=True,
            num_chunk_tokens=num_chunk_tokens,
            num_layers=4,
        )
    for model in ("qwen2.5-7b", "qwen3-8b"):  # with a bias on q, k and v, and with norms of their heads
        for quantization in (None, int8, int4):
            yield Step(model=model, kernels="pallas", quantization=quantization, num_layers=2)
    yield Step(model="mistral-7b-v0.1", kernels="xla")
