"""Part ``speed.attention``: decode rows and a chunk with the heads of a 7B model, beside the portable implementation.

Each launch has a cache of its own. What one launch returns the next one takes, where it takes anything of the kind
(counters, and of a chunk the array it writes into), so that they run one after another.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.paged_attention import Config, Implementation, LayerCache, decode_attention, paged_attention
from pallas_kernels.shapes import SHAPES
from scripts.on_gpu.compiling import Compiled, OutOfTimeError, compile_each, reason
from scripts.on_gpu.keys import random_key
from scripts.on_gpu.matrices import INT8_DEVIATION, num_bytes
from scripts.on_gpu.part import Row
from scripts.on_gpu.peaks import Peaks, peaks_of_this_device
from scripts.on_gpu.sequences import PAGE_SIZE
from scripts.on_gpu.settings import Settings
from scripts.on_gpu.timing import num_launches, seconds_of

_TABLE = "Speed: attention"
DTYPE = jnp.dtype(jnp.bfloat16)
_IMPLEMENTATIONS: tuple[Implementation, ...] = ("pallas", "xla")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch of attention, of which a program has many.

    Attributes:
        model: name of a shape of ``pallas_kernels.shapes``.
        block_q: 1 for decode rows, else the tokens of a block of a chunk of one prompt.
        num_blocks: N; of decode rows B.
        context: tokens of a row, the newest of all included.
        kv_dtype: of the pages.
    """

    model: str
    block_q: int
    num_blocks: int
    context: int
    kv_dtype: str = "bfloat16"

    def __str__(self) -> str:
        return f"decode, B {self.num_blocks}" if self.block_q == 1 else f"chunk of {self.num_blocks * self.block_q}"

    @property
    def num_rows(self) -> int:
        """Of the page table: a chunk is one prompt's."""
        return self.num_blocks if self.block_q == 1 else 1

    @property
    def pages_per_row(self) -> int:
        """P."""
        return -(-self.context // PAGE_SIZE)

    @property
    def starts(self) -> jax.Array:
        """For each block the position of its first token."""
        if self.block_q == 1:
            return jnp.full(self.num_blocks, self.context - 1, jnp.int32)
        return self.context - self.block_q * (self.num_blocks - jnp.arange(self.num_blocks, dtype=jnp.int32))

    @property
    def flops(self) -> float:
        """Multiplications and additions of scores and values, for the keys that are seen."""
        keys = float(jnp.sum(self.starts)) * self.block_q + self.num_blocks * self.block_q * (self.block_q + 1) / 2
        return 4 * keys * SHAPES[self.model].num_heads * SHAPES[self.model].head_dim

    def cache(self, key: jax.Array) -> LayerCache:
        """Full pages."""
        shape = SHAPES[self.model]
        slots = (1 + self.num_rows * self.pages_per_row, PAGE_SIZE, 2, shape.num_kv_heads)
        if self.kv_dtype == "int8":
            values = jax.random.randint(key, (*slots, shape.head_dim), -127, 128, jnp.int8)
            return LayerCache(values, jnp.full(slots, 1 / INT8_DEVIATION, jnp.float32))
        return LayerCache(jax.random.normal(key, (*slots, shape.head_dim), jnp.dtype(self.kv_dtype)), None)

    def operands(self, count: int) -> tuple[Any, ...]:
        """Tokens, what is handed from launch to launch, the caches, and the tables."""
        shape, num_tokens = SHAPES[self.model], self.num_blocks * self.block_q
        num_heads = shape.num_heads + (2 * shape.num_kv_heads if self.block_q == 1 else 0)
        tokens = jax.random.normal(random_key(0), (num_tokens, num_heads, shape.head_dim), DTYPE)
        handed = jnp.zeros((self.num_blocks, shape.num_kv_heads), jnp.int32)
        if self.block_q > 1:
            tokens = tokens.reshape(self.num_blocks, self.block_q, *tokens.shape[1:])
            handed = jnp.zeros((num_tokens, shape.num_heads, shape.head_dim), DTYPE)
        draw = jax.jit(self.cache)
        caches = [draw(key) for key in jax.random.split(random_key(1), count)]
        pages = 1 + jax.random.permutation(random_key(2), self.num_rows * self.pages_per_row).astype(jnp.int32)
        tables = (pages.reshape(self.num_rows, -1), jnp.zeros(self.num_rows, jnp.int32))
        return tokens, handed, caches, tables

    def program(self, implementation: Implementation, config: Config | None = None) -> Callable[..., Any]:
        """A function of ``operands`` with a launch for each cache; the caches are to be donated."""
        shape = SHAPES[self.model]
        options: dict[str, Any] = {"window": shape.window, "scale": shape.head_dim**-0.5}
        options |= {"implementation": implementation, "config": config}

        @jax.jit  # as a function of its own, it is traced and lowered once
        def launch(tokens: jax.Array, handed: jax.Array, cache: LayerCache, tables: Any) -> Any:
            page_table, first_page = tables
            if self.block_q == 1:
                angles = (jnp.ones((len(tokens), shape.head_dim // 2)), jnp.zeros((len(tokens), shape.head_dim // 2)))
                rows = (page_table, first_page, self.starts, *angles)
                return decode_attention(tokens, cache, handed, *rows, **options)
            blocks = (jnp.zeros_like(self.starts), self.starts, jnp.full_like(self.starts, self.block_q))
            attended = paged_attention(tokens, cache, page_table, first_page, *blocks, into=handed, **options)
            return attended, cache, attended

        def run(tokens: jax.Array, handed: jax.Array, caches: list[LayerCache], tables: Any) -> Any:
            results, after = [], []
            for cache in caches:
                result, cache, handed = launch(tokens, handed, cache, tables)
                results.append(result)
                after.append(cache)
            return results, handed, after

        return run


def bytes_of_launch(launch: Launch) -> int:
    """What it reads and writes at least."""
    shape = SHAPES[launch.model]
    cache = jax.eval_shape(launch.cache, random_key(0))
    held = num_bytes(cache) * launch.num_rows * launch.context // (cache.pages.shape[0] * PAGE_SIZE)
    heads = 2 * shape.num_heads + (4 * shape.num_kv_heads if launch.block_q == 1 else 0)
    return held + launch.num_blocks * launch.block_q * heads * shape.head_dim * DTYPE.itemsize


def seconds_of_launch(compiled: Compiled, operands: tuple[Any, ...], settings: Settings) -> tuple[float, Any]:
    """Of one of the launches, and the caches after the last of all runs: those that were given are gone."""
    tokens, handed, caches, tables = operands
    count = len(caches)

    def call() -> Any:
        nonlocal caches
        results, _, caches = compiled(tokens, handed, caches, tables)
        return results

    return seconds_of(call, settings) / count, caches


def launches(settings: Settings) -> tuple[Launch, ...]:
    """All that are timed."""
    if settings.tiny:
        return (Launch(model="stories260k", block_q=1, num_blocks=2, context=20),)
    decode = partial(Launch, model="mistral-7b-v0.1", block_q=1)
    chunk = partial(Launch, model="mistral-7b-v0.1", block_q=16, num_blocks=32)
    floats = [decode(num_blocks=b, context=n) for b in (16, 64) for n in (512, 4096)]
    int8 = [decode(num_blocks=b, context=4096, kv_dtype="int8") for b in (16, 64)]
    return (*floats, *int8, *(chunk(context=n) for n in (512, 4096)), chunk(context=4096, kv_dtype="int8"))


def rows(settings: Settings) -> Iterator[Row]:
    """A row for each launch. All are compiled first."""
    peaks = peaks_of_this_device(settings)
    shapes = {
        each: jax.eval_shape(partial(each.operands, num_caches(each, peaks, settings))) for each in launches(settings)
    }
    programs = {
        (each, name): (each.program(name), operands) for each, operands in shapes.items() for name in _IMPLEMENTATIONS
    }
    compiled = dict(compile_each(programs, settings, donate=(2,)))
    for i, each in enumerate(shapes):
        seconds, faults = dict[str, float](), list[str]()
        for name in _IMPLEMENTATIONS:
            try:
                seconds[name] = _seconds(compiled[each, name], each, peaks, settings)
            except OutOfTimeError:
                yield Row.of_what_was_not_run(_TABLE, len(shapes) - i)
                return
            except Exception as error:  # of this program: the memory may be too small for it, say
                faults.append(f"{name}: {reason(error)}")
        values = {"kernel": str(each), "context": each.context, "pages": each.kv_dtype}
        yield Row(_TABLE, values | _numbers(each, seconds, peaks) | {"fault": "; ".join(faults) or None}, bool(faults))


def num_caches(launch: Launch, peaks: Peaks, settings: Settings) -> int:
    """As many as a program needs so that none is in the L2 cache when it is read."""
    return num_launches(bytes_of_launch(launch), peaks.cache_bytes, settings)


def _seconds(found: Compiled | Exception, launch: Launch, peaks: Peaks, settings: Settings) -> float:
    if isinstance(found, Exception):
        raise found
    if settings.seconds_left <= 0:
        raise OutOfTimeError
    return seconds_of_launch(found, launch.operands(num_caches(launch, peaks, settings)), settings)[0]


def _numbers(launch: Launch, seconds: dict[str, float], peaks: Peaks) -> dict[str, Any]:
    own, other, moved = seconds.get("pallas"), seconds.get("xla"), bytes_of_launch(launch)
    return {
        "us": own and 1e6 * own,
        "MB": moved / 1e6,
        "GB/s": own and moved / own / 1e9,
        "% of bandwidth": own and peaks.share_of_bandwidth(moved, own),
        "% of bf16 peak": own and peaks.share_of_flops(launch.flops, own),
        "us of XLA": other and 1e6 * other,
        "XLA / ours": other / own if own and other else None,
    }
