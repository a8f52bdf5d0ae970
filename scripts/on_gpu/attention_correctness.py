"""Part ``correctness.attention``: decode rows and chunks, and above all the two ways to merge shares, again and again.

The order between thread blocks that run at the same time is what no interpreter shows. So both merges run on the same
random inputs, many times, with lengths that change every time.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from pallas_kernels.paged_attention import Config, LayerCache, decode_attention, paged_attention
from pallas_kernels.paged_attention.configs import Combine
from pallas_kernels.rotary import rotate
from pallas_kernels.shapes import SHAPES
from scripts.on_gpu.compiling import UNTUNED, Compiled, OutOfTimeError, compile_each, reason
from scripts.on_gpu.keys import random_key
from scripts.on_gpu.part import Row
from scripts.on_gpu.peaks import peaks_of_this_device
from scripts.on_gpu.product_correctness import LIMITS
from scripts.on_gpu.sequences import PAGE_SIZE, attended, head_error, paged
from scripts.on_gpu.settings import Settings

_TABLE = "Correctness: attention"
_REPEATS, _REPEATS_AT_A_TIME = 200, 20
_SECONDS_OF_A_CASE = 1.5
"""After which no more repeats begin."""
_COMBINES: tuple[Combine, ...] = ("last_split", "second_kernel")
_OWN = "rule or table"
"""The launch without an explicit config."""
_BETWEEN = "between the two"
_COMPARED = (_OWN, *_COMBINES, _BETWEEN)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One program that is compared with the definition.

    Attributes:
        model: name of a shape of ``pallas_kernels.shapes``.
        block_q: 1 for decode rows, else the tokens of a block of a chunk.
        num_blocks: N; of decode rows B.
        longest: tokens of the longest sequence.
        num_splits: of the two launches that merge shares.
        dtype, kv_dtype: of queries and pages.
    """

    model: str
    block_q: int
    num_blocks: int
    longest: int
    num_splits: int
    dtype: str = "bfloat16"
    kv_dtype: str = "bfloat16"

    def __str__(self) -> str:
        what = f"decode, B {self.num_blocks}" if self.block_q == 1 else f"{self.num_blocks} blocks of {self.block_q}"
        return f"{self.model}, {what}"

    @property
    def window(self) -> int | None:
        """The model's, but shorter than the sequences."""
        window = SHAPES[self.model].window
        return None if window is None else min(window, self.longest // 3)

    @property
    def configs(self) -> dict[str, Config | None]:
        """The launches that are compared, by name."""
        rows = max(16, 1 << (self.block_q * SHAPES[self.model].group - 1).bit_length())
        tiles: dict[str, Any] = {"block_rows": min(rows, 64), "block_keys": 32, "num_splits": self.num_splits}
        tiles["num_stages"] = 2
        if self.dtype == "float32":
            tiles |= {"block_rows": 16 if self.block_q > 1 else rows, "block_keys": 16}
        return {_OWN: None} | {combine: Config(**tiles, combine=combine) for combine in _COMBINES}

    def measure(self, key: Array) -> dict[str, Array]:
        """The error of each launch, and of the two merges against each other, for random inputs."""
        return self._decode(key) if self.block_q == 1 else self._chunk(key)

    def _decode(self, key: Array) -> dict[str, Array]:
        shape, dtype = SHAPES[self.model], jnp.dtype(self.dtype)
        keys = jax.random.split(key, 5)
        position = jax.random.randint(keys[0], (self.num_blocks,), -1, self.longest)  # -1 is padding
        qkv = _normal(keys[1], (self.num_blocks, shape.num_heads + 2 * shape.num_kv_heads, shape.head_dim), dtype)
        angles = jax.random.uniform(keys[2], (self.num_blocks, shape.head_dim // 2), maxval=2 * jnp.pi)
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        q, k, v = jnp.split(qkv, [shape.num_heads, shape.num_heads + shape.num_kv_heads], axis=1)
        q, k = (rotate(x.astype(jnp.float32), cos, sin) for x in (q, k))
        kv = _normal(keys[3], (self.num_blocks, self.longest, 2, *k.shape[1:]), dtype).astype(jnp.float32)
        newest = jnp.arange(self.longest) == position[:, None]
        kv = jnp.where(newest[..., None, None, None], jnp.stack([k, v.astype(jnp.float32)], axis=1)[:, None], kv)
        held, first_page = jnp.arange(self.longest) <= position[:, None], self._first_page(position)
        after = paged(keys[4], kv, held, first_page, jnp.dtype(self.kv_dtype))
        before = paged(keys[4], kv, held & ~newest, first_page, jnp.dtype(self.kv_dtype))
        expected = attended(q[:, None], after.kv, position[:, None], window=self.window, scale=self._scale)[:, 0]
        arrivals = jnp.zeros((self.num_blocks, shape.num_kv_heads), jnp.int32)
        results, errors = dict[str, Array](), dict[str, Array]()
        for name, config in self.configs.items():
            decode = partial(decode_attention, window=self.window, scale=self._scale, implementation="pallas")
            tables = (before.page_table, first_page, position, cos, sin)
            results[name], cache, left = decode(qkv, before.cache, arrivals, *tables, config=config)
            wrong = jnp.maximum(head_error(results[name], expected), _cache_error(cache, after.cache))
            errors[name] = jnp.where(jnp.any(left != 0), jnp.inf, wrong)
        return errors | _between(results)

    def _chunk(self, key: Array) -> dict[str, Array]:
        shape, dtype = SHAPES[self.model], jnp.dtype(self.dtype)
        keys = jax.random.split(key, 6)
        num_rows = max(1, self.num_blocks // 4)
        start = jax.random.randint(keys[0], (self.num_blocks,), 0, self.longest - self.block_q)
        length = jax.random.randint(keys[1], (self.num_blocks,), 0, self.block_q + 1)
        row = jax.random.randint(keys[2], (self.num_blocks,), 0, num_rows)
        q = _normal(keys[3], (self.num_blocks, self.block_q, shape.num_heads, shape.head_dim), dtype)
        kv = _normal(keys[4], (num_rows, self.longest, 2, shape.num_kv_heads, shape.head_dim), dtype)
        held = jnp.ones((num_rows, self.longest), bool)
        oldest = jax.ops.segment_min(start, row, num_segments=num_rows)  # the first token of any block of a row
        first_page = self._first_page(jnp.minimum(oldest, self.longest - 1))
        sequences = paged(keys[5], kv.astype(jnp.float32), held, first_page, jnp.dtype(self.kv_dtype))
        in_block = jnp.arange(self.block_q)
        position = jnp.where(in_block < length[:, None], start[:, None] + in_block, -1)
        truth = attended(q, sequences.kv[row], position, window=self.window, scale=self._scale)
        expected = truth.reshape(-1, *q.shape[2:])
        attend = partial(paged_attention, window=self.window, scale=self._scale, implementation="pallas")
        tables = (sequences.page_table, first_page, row, start, length)
        results = {name: attend(q, sequences.cache, *tables, config=c) for name, c in self.configs.items()}
        return {name: head_error(result, expected) for name, result in results.items()} | _between(results)

    def _first_page(self, position: Array) -> Array:
        """Pages before the first key that the token at ``position`` attends to."""
        if self.window is None:
            return jnp.zeros_like(position)
        return jnp.maximum(position + 1 - self.window, 0) // PAGE_SIZE

    @property
    def _scale(self) -> float:
        return SHAPES[self.model].head_dim ** -0.5


def rows(settings: Settings) -> Iterator[Row]:
    """A row for each case."""
    peaks_of_this_device(settings)
    cases = _tiny_cases() if settings.tiny else _cases()
    programs = {case: (case.measure, (random_key(0),)) for case in cases}
    for case, program in compile_each(programs, settings, UNTUNED):
        yield _row(case, program, settings)


def _cases() -> Sequence[Case]:
    """Real heads: groups of 1 to 12, heads of 8 to 256."""
    mistral = "mistral-7b-v0.1"
    decode = partial(Case, block_q=1)
    chunk = partial(Case, block_q=16)
    return (
        decode(model=mistral, num_blocks=16, longest=3000, num_splits=8),
        decode(model=mistral, num_blocks=64, longest=1500, num_splits=4),
        decode(model=mistral, num_blocks=1, longest=4000, num_splits=16),
        decode(model=mistral, num_blocks=16, longest=3000, num_splits=8, kv_dtype="int8"),
        chunk(model=mistral, num_blocks=32, longest=2000, num_splits=4),
        chunk(model=mistral, num_blocks=16, longest=2000, num_splits=4, kv_dtype="int8"),
        Case(model=mistral, block_q=32, num_blocks=8, longest=2000, num_splits=4),
        decode(model="smollm2-135m", num_blocks=16, longest=2000, num_splits=8),
        chunk(model="smollm2-135m", num_blocks=16, longest=2000, num_splits=4),
        decode(model="smollm2-135m", num_blocks=16, longest=2000, num_splits=8, kv_dtype="int8"),
        decode(model="qwen2.5-0.5b", num_blocks=16, longest=2000, num_splits=8),
        chunk(model="qwen2.5-0.5b", num_blocks=16, longest=2000, num_splits=4),
        decode(model="mistral-large-123b", num_blocks=8, longest=2000, num_splits=8),
        decode(model="h2o-danube-1.8b", num_blocks=16, longest=2000, num_splits=8),
        chunk(model="h2o-danube-1.8b", num_blocks=16, longest=2000, num_splits=4),
        decode(model="phi-3-mini-4k", num_blocks=8, longest=2000, num_splits=4),
        decode(model="gemma-2-2b", num_blocks=8, longest=2000, num_splits=8),
        chunk(model="gemma-2-2b", num_blocks=8, longest=2000, num_splits=4),
        decode(model="gemma-2-2b", num_blocks=8, longest=2000, num_splits=8, kv_dtype="int8"),
        chunk(model="gemma-2-2b", num_blocks=8, longest=2000, num_splits=4, kv_dtype="int8"),
        decode(model="stories260k", num_blocks=8, longest=256, num_splits=4, dtype="float32", kv_dtype="float32"),
        decode(model="smollm2-135m", num_blocks=16, longest=2000, num_splits=8, dtype="float32", kv_dtype="float32"),
        chunk(model="smollm2-135m", num_blocks=16, longest=1000, num_splits=4, dtype="float32", kv_dtype="float32"),
    )


def _tiny_cases() -> Sequence[Case]:
    tiny = partial(Case, model="stories260k", num_splits=2, dtype="float32", longest=40)
    return (
        tiny(block_q=1, num_blocks=2, kv_dtype="float32"),
        tiny(block_q=16, num_blocks=2, kv_dtype="float32"),
    )


def _row(case: Case, program: Compiled | Exception, settings: Settings) -> Row:
    """The largest errors of many random inputs."""
    values: dict[str, Any] = {"kernel": str(case), "queries": case.dtype, "pages": case.kv_dtype}
    # What goes into int8 pages may be half a step off, since the kernel rounds the newest token itself.
    limit = LIMITS["bfloat16" if case.kv_dtype == "int8" else case.dtype]
    try:
        errors, repeats = _worst(program, settings)
    except OutOfTimeError:
        return Row(_TABLE, values | {"launches": 0, "limit": limit, "ok": None}, num_not_run=1)
    except Exception as error:  # of this case; the next one may be right
        return Row(_TABLE, values | {"ok": False, "fault": reason(error)}, is_fault=True)
    ok = all(error <= limit for error in errors.values())
    return Row(_TABLE, values | {"launches": repeats} | errors | {"limit": limit, "ok": ok}, is_fault=not ok)


def _worst(program: Compiled | Exception, settings: Settings) -> tuple[dict[str, float], int]:
    if isinstance(program, Exception):
        raise program
    if settings.seconds_left <= 0:
        raise OutOfTimeError
    repeats, at_a_time = (2, 2) if settings.tiny else (_REPEATS, _REPEATS_AT_A_TIME)
    begin, worst, done = time.monotonic(), dict[str, float](), 0
    while done < repeats and time.monotonic() - begin < _SECONDS_OF_A_CASE:
        errors = [program(random_key(seed)) for seed in range(done, done + at_a_time)]
        worst = {name: max(worst.get(name, 0), *(float(error[name]) for error in errors)) for name in _COMPARED}
        done += at_a_time
    return worst, done


def _between(results: dict[str, Array]) -> dict[str, Array]:
    first, second = (results[combine] for combine in _COMBINES)
    return {_BETWEEN: head_error(first, second)}


def _cache_error(cache: LayerCache, expected: LayerCache) -> Array:
    """Of all pages but the dummy one, to which padding writes; what is not in float is what its scale says."""
    values, truth = (
        x.pages[1:] if x.scales is None else x.pages[1:].astype(jnp.float32) * x.scales[1:, ..., None]
        for x in (cache, expected)
    )
    return head_error(values, truth)


def _normal(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """Numbers that ``dtype`` has; the barrier, since a compiler may let one reader see them before they are rounded."""
    return jax.lax.optimization_barrier(jax.random.normal(key, shape).astype(dtype))
