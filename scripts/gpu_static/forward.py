"""The forward programs of whole models that are compiled for every target, from shapes alone: no weight is made."""

from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from checkpoints import PRESETS
from jaxinfer import kv_cache
from jaxinfer.config import EngineConfig
from jaxinfer.gpu_compile import GpuTarget, ProgramReport, compile_for
from jaxinfer.kv_cache import KVCache
from jaxinfer.model import Decoder
from jaxinfer.programs import Programs
from jaxinfer.weights import weight_shapes
from pallas_kernels.paged_attention import Implementation

_DTYPE = jnp.dtype(jnp.bfloat16)
_MAX_NUM_SEQS = 16
_PAGE_SIZE, _NUM_KV_PAGES = 16, 2048


@dataclass(frozen=True, kw_only=True)
class Step:
    """One forward program (B, C) of a model in bfloat16.

    Attributes:
        model: name of a preset.
        kernels: the implementation of attention.
        num_rows, num_chunk_tokens: B and C.
    """

    model: str
    kernels: Implementation
    num_rows: int = 16
    num_chunk_tokens: int = 0

    @property
    def label(self) -> str:
        """What the program is, in a few words."""
        return f"{self.model}, B {self.num_rows}, C {self.num_chunk_tokens} | {self.kernels}"

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return PRESETS[self.model].num_layers

    @property
    def cache_bytes(self) -> int:
        """Bytes of the pages of all layers."""
        return sum(layer.pages.size * layer.pages.dtype.itemsize for layer in self._cache().layers)

    @property
    def layer_weight_bytes(self) -> int:
        """Bytes of the smallest matrix of a layer: a copy of a weight would be at least so large."""
        return min(
            _DTYPE.itemsize * shape[0] * shape[1]
            for name, shape in weight_shapes(PRESETS[self.model]).items()
            if name.startswith("layers.0.") and len(shape) == 2
        )

    def compile(self, target: GpuTarget) -> ProgramReport:
        """What comes out for ``target``."""
        config = PRESETS[self.model]
        weights = {name: jax.ShapeDtypeStruct(shape, _DTYPE) for name, shape in weight_shapes(config).items()}
        limits = EngineConfig(
            max_model_len=8192,
            max_num_seqs=_MAX_NUM_SEQS,
            max_chunk_tokens=max(self.num_chunk_tokens, EngineConfig.block_q),
            page_size=_PAGE_SIZE,
            num_kv_pages=_NUM_KV_PAGES,
        )
        programs = Programs(Decoder(config, weights, kernels=self.kernels), limits, self._cache())
        forward, arguments = programs.forward_call(self.num_rows, self.num_chunk_tokens)
        return compile_for(target, forward, *arguments).report

    def _cache(self) -> KVCache:
        config = PRESETS[self.model]
        return jax.eval_shape(
            lambda: kv_cache.allocate(
                config,
                num_pages=_NUM_KV_PAGES,
                page_size=_PAGE_SIZE,
                max_num_seqs=_MAX_NUM_SEQS,
                dtype=_DTYPE,
            )
        )


def steps() -> Iterator[Step]:
    """All forward programs, in the order of the table."""
    for num_chunk_tokens in (0, 64, 512):
        yield Step(model="mistral-7b-v0.1", kernels="pallas", num_chunk_tokens=num_chunk_tokens)
    yield Step(model="mistral-7b-v0.1", kernels="xla")
