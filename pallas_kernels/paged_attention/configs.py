"""Tile sizes of the GPU kernel: an explicit ``Config``, else the device's tuned table, else a rule of thumb.

A tuned table is a JSON file in ``tuned/``, named after the device (``NVIDIA_H100_80GB_HBM3.json``): a list of objects,
each a ``Problem``'s fields under ``problem`` and a ``Config``'s under ``config``.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from pallas_kernels.device import Device

Combine = Literal["last_split", "second_kernel"]
"""Who merges the shares of a split: the one that arrives last, or a kernel of its own after all of them."""

_TUNED = Path(__file__).with_name("tuned")

_MAX_SPLITS = 16
_ROWS_OF_A_CHUNK = 64
"""Query rows of a tile: with 128 and heads of 128 the kernel takes more registers than leave room for two of it."""


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
    """

    num_blocks: int
    block_q: int
    num_kv_heads: int
    group: int
    head_dim: int
    dtype: str
    kv_dtype: str


@dataclass(frozen=True, kw_only=True)
class Config:
    """How the kernel cuts its work. Any valid config gives the same result, up to rounding.

    Attributes:
        block_rows: (token, query head) pairs of one tile of queries; a power of two, at least 16.
        block_keys: keys of one round of the loop; a power of two, at least 16.
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
            value = getattr(self, name)
            if value < 16 or value & (value - 1):
                raise ValueError(f"{name} is {value}; it must be a power of two and at least 16")
        if self.num_warps not in (1, 2, 4, 8, 16):
            raise ValueError(f"num_warps is {self.num_warps}; it must be 1, 2, 4, 8 or 16")
        for name in ("num_splits", "num_stages"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.combine not in get_args(Combine):
            raise ValueError(f"combine is {self.combine!r}; it must be {' or '.join(map(repr, get_args(Combine)))}")


def find_config(problem: Problem, device: Device, tuned: Path = _TUNED) -> Config:
    """The config for a launch: from the device's table in ``tuned``, else by the rule of thumb.

    Raises:
        ValueError: the device's table is not what it should be.
    """
    return _read_table(tuned / f"{device.kind.replace(' ', '_')}.json").get(problem) or _heuristic(problem, device)


@cache
def _read_table(path: Path) -> dict[Problem, Config]:
    if not path.is_file():
        return {}
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {Problem(**entry["problem"]): Config(**entry["config"]) for entry in entries}
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is no table of tuned configs: {error}") from error


def _heuristic(problem: Problem, device: Device) -> Config:
    """As many shares as keep every multiprocessor busy, twice over for decode rows, whose programs are short."""
    padded_rows = max(16, 1 << (problem.block_q * problem.group - 1).bit_length())
    if problem.block_q == 1:
        programs = problem.num_blocks * problem.num_kv_heads
        splits = min(_MAX_SPLITS, -(-2 * device.num_cores // programs))
        return Config(
            block_rows=padded_rows, num_splits=splits, num_warps=4, num_stages=3 if problem.head_dim > 128 else 5
        )
    rows = min(_ROWS_OF_A_CHUNK, padded_rows)
    programs = problem.num_blocks * -(-problem.block_q * problem.group // rows) * problem.num_kv_heads
    splits = max(1, min(_MAX_SPLITS, device.num_cores // programs))
    return Config(block_rows=rows, num_splits=splits, combine="second_kernel", num_warps=8, num_stages=3)
