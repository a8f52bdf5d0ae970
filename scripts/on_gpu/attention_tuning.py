"""Attention as problems of tuning."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product as combinations
from typing import Any, get_args

import jax

from pallas_kernels.device import Device
from pallas_kernels.paged_attention import Config
from pallas_kernels.paged_attention.configs import Combine, Problem, find_config
from pallas_kernels.shapes import SHAPES
from pallas_kernels.tuned import round_up
from scripts.on_gpu import attention_speed
from scripts.on_gpu.attention_speed import Launch
from scripts.on_gpu.compiling import Compiled
from scripts.on_gpu.peaks import peaks_of_this_device
from scripts.on_gpu.product_correctness import LIMITS
from scripts.on_gpu.product_tuning import NO_TABLE
from scripts.on_gpu.sequences import head_error
from scripts.on_gpu.settings import Settings

_CONTEXT = 1024
_DECODE_ROWS = (1, 8, 16, 32, 64, 128)
_CHUNK_BLOCKS = (4, 8, 16, 32)
"""Of 16 tokens: the chunks of engines with 256 tokens a step, and with 512; each has a quarter of that too."""


@dataclass(frozen=True)
class AttentionTuning:
    """One launch of attention, at a context of about a thousand tokens."""

    launch: Launch

    def __str__(self) -> str:
        return f"{self.launch.model} {self.launch}, {self.launch.kv_dtype} pages"

    @property
    def problem(self) -> Problem:
        """As the kernel's launch looks it up."""
        shape = SHAPES[self.launch.model]
        return Problem(
            num_blocks=round_up(self.launch.num_blocks),
            block_q=self.launch.block_q,
            num_kv_heads=shape.num_kv_heads,
            group=shape.group,
            head_dim=shape.head_dim,
            dtype=attention_speed.DTYPE.name,
            kv_dtype=self.launch.kv_dtype,
        )

    @property
    def donated(self) -> tuple[int, ...]:
        """The caches."""
        return (2,)

    def candidates(self, device: Device) -> list[Config]:
        """The rule of thumb, and what lies around it. The tile of queries of decode rows is as it must be."""
        rule = find_config(self.problem, device, NO_TABLE)
        rows = (rule.block_rows,) if self.launch.block_q == 1 else (rule.block_rows // 2, rule.block_rows)
        splits = {max(1, rule.num_splits // 2), rule.num_splits, 2 * rule.num_splits}
        around = [
            replace(rule, block_rows=size, block_keys=keys, num_splits=count, num_warps=warps, num_stages=stages)
            for size, keys, count, warps, stages in combinations(
                [size for size in rows if size >= 16], (32, 64), sorted(splits), (4, 8), (2, 3, 4)
            )
        ]
        return [rule, *(replace(rule, combine=combine) for combine in get_args(Combine)), *around]

    def limit(self, config: Config) -> float:
        """Of a head."""
        return LIMITS[attention_speed.DTYPE.name]

    def shapes(self, settings: Settings) -> tuple[Any, ...]:
        """As ``Launch.operands``."""
        return jax.eval_shape(partial(self.launch.operands, self._num_caches(settings)))

    def program(self, config: Config) -> Callable[..., Any]:
        """As ``Launch.program``."""
        return self.launch.program("pallas", config)

    def bench(self, settings: Settings) -> "AttentionBench":
        """Random tokens and caches."""
        operands = self.launch.operands(self._num_caches(settings))
        results, _, caches = jax.jit(self.launch.program("xla"), donate_argnums=2)(*operands)
        return AttentionBench((*operands[:2], caches, *operands[3:]), results)

    def _num_caches(self, settings: Settings) -> int:
        return attention_speed.num_caches(self.launch, peaks_of_this_device(settings), settings)


@dataclass
class AttentionBench:
    """Arrays of one launch, and its results by the portable implementation.

    Every program writes the same newest tokens to the caches, which it gives back for the next one.
    """

    operands: tuple[Any, ...]
    expected: Sequence[jax.Array]

    def error(self, program: Compiled) -> float:
        """Of a head."""
        results, _, caches = program(*self.operands)
        self._keep(caches)
        return max(float(head_error(*pair)) for pair in zip(results, self.expected, strict=True))

    def seconds(self, program: Compiled, settings: Settings) -> float:
        """Of one launch."""
        seconds, caches = attention_speed.seconds_of_launch(program, self.operands, settings)
        self._keep(caches)
        return seconds

    def _keep(self, caches: Any) -> None:
        self.operands = (*self.operands[:2], caches, *self.operands[3:])


def attention_cases(models: Sequence[str], settings: Settings) -> Iterator[AttentionTuning]:
    """Every problem once."""
    seen = set[Problem]()
    context, rows, blocks = (20, (2,), ()) if settings.tiny else (_CONTEXT, _DECODE_ROWS, _CHUNK_BLOCKS)
    sizes = [(1, size) for size in rows] + [(16, size) for size in blocks]
    for kv_dtype, model, (block_q, num_blocks) in combinations(("bfloat16", "int8"), models, sizes):
        launch = Launch(model=model, block_q=block_q, num_blocks=num_blocks, context=context, kv_dtype=kv_dtype)
        case = AttentionTuning(launch)
        if case.problem not in seen:
            seen.add(case.problem)
            yield case
