"""Tile sizes of the GPU kernel: an explicit ``Config``, else the device's tuned table, else a rule of thumb."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from pallas_kernels.arrays import check_count, check_one_of
from pallas_kernels.device import Device
from pallas_kernels.tuned import check_rounded, read_table, round_up, table_name

Combine = Literal["last_split", "second_kernel"]
"""Who merges the shares of a split: the one that arrives last, or a kernel of its own after all of them."""

_TUNED = Path(__file__).with_name("tuned")

_NARROW_HEAD = 128
"""Up to this head_dim the large tiles fit."""

_MAX_SCORES = 4096
"""Scores of one round that a program holds in registers: 64 x 64 or 128 x 32."""

_TILE_SIZES = (16, 32, 64, 128, 256, 512, 1024)
_MOST_SPLITS = 65535
"""The largest third extent of a CUDA grid."""

_MAX_SPLITS = 16
"""A share should be worth its merging: with more, a short context is cut into single tiles of keys."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What a launch is tuned for.

    Attributes:
        num_blocks: N, blocks of queries.
        block_q: tokens of one block.
        num_kv_heads: K.
        group: G, query heads of one kv head.
        head_dim: D.
        dtype: of the queries.
        kv_dtype: of the pages.

    Raises:
        ValueError: a value is out of range.
    """

    num_blocks: int
    block_q: int
    num_kv_heads: int
    group: int
    head_dim: int
    dtype: str
    kv_dtype: str

    def __post_init__(self) -> None:
        for name in ("num_blocks", "block_q", "num_kv_heads", "group", "head_dim"):
            check_count(name, getattr(self, name))
        check_one_of("dtype", self.dtype, ("float32", "bfloat16"))
        check_one_of("kv_dtype", self.kv_dtype, ("float32", "bfloat16", "int8"))

    @property
    def has_int8_pages(self) -> bool:
        """Whether keys and values are converted on their way, which takes registers."""
        return self.kv_dtype == "int8"


@dataclass(frozen=True, kw_only=True)
class Config:
    """How the kernel cuts its work. Any valid config gives the same result, up to rounding.

    Attributes:
        block_rows: (token, query head) pairs of one tile of queries; a power of two of 16 to 1,024.
        block_keys: keys of one round of the loop; likewise.
        num_splits: shares into which the keys of a tile of queries are cut, at most.
        combine: who merges the shares.
        num_warps: groups of 32 threads of one program.
        num_stages: rounds of the loop whose loads are under way at a time.

    Raises:
        ValueError: a value is out of range.
    """

    block_rows: int
    block_keys: int = 64
    num_splits: int = 1
    combine: Combine = "last_split"
    num_warps: int = 4
    num_stages: int = 3

    def __post_init__(self) -> None:
        for name in ("block_rows", "block_keys"):
            check_one_of(name, getattr(self, name), _TILE_SIZES)
        check_one_of("num_warps", self.num_warps, (1, 2, 4, 8, 16))
        check_one_of("num_stages", self.num_stages, tuple(range(1, 9)))
        check_one_of("combine", self.combine, get_args(Combine))
        if type(self.num_splits) is not int or not 1 <= self.num_splits <= _MOST_SPLITS:
            raise ValueError(f"num_splits is {self.num_splits!r}; it must be a whole number in [1, {_MOST_SPLITS}]")


def find_config(problem: Problem, device: Device, tuned: Path = _TUNED) -> Config:
    """The config for a launch: from the device's table in ``tuned``, else by the rule of thumb.

    In the table a problem stands with its number of blocks rounded up to a power of two.

    Raises:
        ValueError: the device's table is not what it should be.
    """
    table = read_table(tuned / table_name(device), Problem, Config, _check_entry)
    return table.get(replace(problem, num_blocks=round_up(problem.num_blocks))) or _heuristic(problem, device)


def _check_entry(problem: Problem, config: Config) -> None:
    check_rounded("num_blocks", problem.num_blocks)


def _heuristic(problem: Problem, device: Device) -> Config:
    """Tiles that for the heads of real models keep to the limits of ``docs/gpu-static.md`` on all targets: no spilled
    register, and the shared memory of the smallest. None of it was timed.
    """
    return _for_decode(problem, device) if problem.block_q == 1 else _for_chunk(problem, device)


def _for_decode(problem: Problem, device: Device) -> Config:
    """Enough shares to keep every multiprocessor busy twice over: the programs of a small batch are few and short."""
    programs = problem.num_blocks * problem.num_kv_heads
    if problem.dtype == "float32":
        keys, warps, stages = 16, 8 if problem.has_int8_pages else 4, _float32_stages(problem)
    elif problem.has_int8_pages or problem.head_dim > _NARROW_HEAD:
        keys, warps, stages = 32, 4, 3
    else:
        keys, warps, stages = 64, 4, 3
    return Config(
        block_rows=min(_power_of_two(problem.group), _TILE_SIZES[-1]),
        block_keys=keys,
        num_splits=min(_MAX_SPLITS, -(-2 * device.num_cores // programs)),
        combine="last_split",
        num_warps=warps,
        num_stages=stages,
    )


def _for_chunk(problem: Problem, device: Device) -> Config:
    """As many rows as registers allow: each row more is work for the same loads. Shares only where blocks are few."""
    if problem.dtype == "float32":
        most_rows, most_keys = 16, 16
    elif problem.head_dim > _NARROW_HEAD:
        most_rows, most_keys = 32, 32
    elif problem.has_int8_pages:
        most_rows, most_keys = 64, 32
    else:
        most_rows, most_keys = 128, 64
    rows = min(most_rows, _power_of_two(problem.block_q * problem.group))
    programs = problem.num_blocks * -(-problem.block_q * problem.group // rows) * problem.num_kv_heads
    return Config(
        block_rows=rows,
        block_keys=min(most_keys, _MAX_SCORES // rows),
        num_splits=max(1, min(_MAX_SPLITS, device.num_cores // programs)),
        combine="second_kernel",
        num_warps=4 if rows == 16 and problem.dtype != "float32" else 8,
        num_stages=_float32_stages(problem) if problem.dtype == "float32" else 2,
    )


def _float32_stages(problem: Problem) -> int:
    """One where wide heads are converted on their way: with a second under way the registers spill."""
    return 1 if problem.has_int8_pages and problem.head_dim > _NARROW_HEAD else 2


def _power_of_two(rows: int) -> int:
    """The smallest tile that holds so many rows."""
    return max(16, 1 << (rows - 1).bit_length())
