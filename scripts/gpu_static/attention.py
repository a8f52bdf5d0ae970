"""The launches of attention that are compiled for every target: real heads, and every way the kernel is used."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxinfer.gpu_compile import GpuTarget, ProgramReport, compile_for
from pallas_kernels.paged_attention import Config, LayerCache, decode_attention, paged_attention
from pallas_kernels.shapes import SHAPES

_PAGE_SIZE, _PAGES_PER_ROW = 16, 512
_MAX_ROWS = 64
"""Rows of the chunk's page table, and counters of the cache."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch of the kernel.

    Attributes:
        model: name of a shape of ``pallas_kernels.shapes``.
        num_rows: B, of decode rows.
        block_q: 1 for decode rows, which bring their newest token; more for blocks of a chunk of 256 tokens.
        dtype: of the queries and of float pages.
        int8_pages: whether the cache is int8 with scales.
        num_pages: of the cache.
        qk_norm: whether the decode rows' heads are normed.
        config: tile sizes, or None for the rule of thumb.
        note: what is special about it, for the table.
    """

    model: str
    block_q: int
    num_rows: int = 16
    dtype: str = "bfloat16"
    int8_pages: bool = False
    num_pages: int = 4096
    qk_norm: bool = False
    config: Config | None = None
    note: str = ""

    @property
    def label(self) -> str:
        """What the launch is, in a few words."""
        shape = SHAPES[self.model]
        what = f"decode, B {self.num_rows}" if self.block_q == 1 else f"chunk, blocks of {self.block_q}"
        cache = "int8" if self.int8_pages else self.dtype
        heads = f"{self.model}: D {shape.head_dim}, G {shape.group}, K {shape.num_kv_heads}"
        return " | ".join((what, heads, cache, self.note or "-"))

    def compile(self, target: GpuTarget) -> ProgramReport:
        """What comes out for ``target``; the cache is donated where the launch writes to it."""
        return compile_for(target, *self._decode() if self.block_q == 1 else self._chunk()).report

    @property
    def cache_bytes(self) -> int:
        """Bytes of the layer's cache."""
        return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(self._cache()))

    def _decode(self) -> tuple[Any, ...]:
        shape = SHAPES[self.model]
        num_heads, dim = shape.num_heads + 2 * shape.num_kv_heads, shape.head_dim
        norms = {"q_norm": _array(dim, dtype=self.dtype), "k_norm": _array(dim, dtype=self.dtype)}
        attend = partial(decode_attention, norm_eps=1e-5, **self._options())
        arguments = (
            _array(self.num_rows, num_heads, dim, dtype=self.dtype),
            self._cache(),
            _array(_MAX_ROWS, shape.num_kv_heads),
            _array(self.num_rows, _PAGES_PER_ROW),
            _array(self.num_rows),
            _array(self.num_rows),
            _array(self.num_rows, dim // 2, dtype="float32"),
            _array(self.num_rows, dim // 2, dtype="float32"),
            norms if self.qk_norm else {},
        )

        def decode(*arrays: Any) -> Any:
            return attend(*arrays[:-1], **arrays[-1])

        return jax.jit(decode, donate_argnums=(1, 2)), *arguments

    def _chunk(self) -> tuple[Any, ...]:
        shape, num_blocks = SHAPES[self.model], 256 // self.block_q
        arguments = (
            _array(num_blocks, self.block_q, shape.num_heads, shape.head_dim, dtype=self.dtype),
            self._cache(),
            _array(_MAX_ROWS, _PAGES_PER_ROW),
            _array(_MAX_ROWS),
            *[_array(num_blocks)] * 3,
        )
        return jax.jit(partial(paged_attention, **self._options())), *arguments

    def _options(self) -> dict[str, Any]:
        shape = SHAPES[self.model]
        return {
            "window": shape.window,
            "scale": shape.head_dim**-0.5,
            "implementation": "pallas",
            "config": self.config,
        }

    def _cache(self) -> LayerCache:
        shape = SHAPES[self.model]
        pages = (self.num_pages, _PAGE_SIZE, 2, shape.num_kv_heads, shape.head_dim)
        return LayerCache(
            pages=_array(*pages, dtype="int8" if self.int8_pages else self.dtype),
            scales=_array(*pages[:-1], dtype="float32") if self.int8_pages else None,
        )


def launches() -> Iterator[Launch]:
    """All launches, in the order of the table."""
    for model in ("mistral-7b-v0.1", "mistral-large-123b", "smollm2-135m", "h2o-danube-1.8b", "phi-3-mini-4k"):
        for block_q in (1, 16, 32):
            yield Launch(model=model, block_q=block_q)
    for num_rows in (1, 64):
        yield Launch(model="mistral-7b-v0.1", block_q=1, num_rows=num_rows)
    for model in ("mistral-7b-v0.1", "smollm2-135m", "gemma-2-2b"):
        for block_q in (1, 16, 32):
            yield Launch(model=model, block_q=block_q, int8_pages=True)
    for block_q in (1, 16, 32):
        yield Launch(model="gemma-2-2b", block_q=block_q)
    for block_q in (1, 16):
        yield Launch(model="mistral-7b-v0.1", block_q=block_q, dtype="float32", note="for comparisons")
    for block_q in (1, 16):
        yield Launch(model="gemma-2-2b", block_q=block_q, dtype="float32", int8_pages=True, note="queries in float32")
    yield Launch(model="qwen3-8b", block_q=1, qk_norm=True, note="q/k norm")
    for block_q in (1, 16):
        yield Launch(model="mistral-7b-v0.1", block_q=block_q, num_pages=100_000, note="6.6 GB of pages")
    two_kernels = Config(block_rows=16, num_splits=4, combine="second_kernel")
    yield Launch(model="mistral-7b-v0.1", block_q=1, config=two_kernels, note="merged by a second kernel")


def _array(*shape: int, dtype: str = "int32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))
