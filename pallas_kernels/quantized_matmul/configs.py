"""Tile sizes of the GPU kernel: an explicit ``Config``, else the device's tuned table, else a rule of thumb."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from pallas_kernels.arrays import FLOATS, check_count, check_one_of
from pallas_kernels.device import Device
from pallas_kernels.tuned import read_table, round_up, table_name

Method = Literal["fused", "library"]
"""The kernel; or, for many rows, the matrix as floats once and XLA's own GEMM, which it tries out on the device."""

_TUNED = Path(__file__).with_name("tuned")

_TILE_SIZES = (16, 32, 64, 128, 256)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What a launch is tuned for.

    Attributes:
        num_rows: T, rows of activations.
        num_outputs: N, rows of the matrix.
        num_inputs: K.
        weight: its format.
        group_size: inputs of an INT4 group, 0 for the other formats.
        swiglu: whether half of the outputs are gates.
        dtype: of the activations.

    Raises:
        ValueError: a value is out of range.
    """

    num_rows: int
    num_outputs: int
    num_inputs: int
    weight: str
    group_size: int
    swiglu: bool
    dtype: str

    def __post_init__(self) -> None:
        for name in ("num_rows", "num_outputs", "num_inputs"):
            check_count(name, getattr(self, name))
        check_one_of("weight", self.weight, (*FLOATS, "int8", "int4"))
        check_count("group_size", self.group_size, least=0)
        check_one_of("swiglu", self.swiglu, (False, True))
        check_one_of("dtype", self.dtype, FLOATS)


@dataclass(frozen=True, kw_only=True)
class Config:
    """How the kernel cuts its work. Any valid config gives the same result, up to rounding.

    Attributes:
        block_rows: rows of one tile of the result; a power of two of 16 to 256.
        block_outputs: columns of one tile of the result; likewise.
        block_inputs: inputs of one round of the loop; likewise. INT4 takes 128, the piece that it is packed in.
        num_warps: groups of 32 threads of one program.
        num_stages: rounds of the loop whose loads are under way at a time.
        method: whether the kernel runs at all.

    Raises:
        ValueError: a value is out of range.
    """

    block_rows: int
    block_outputs: int = 64
    block_inputs: int = 128
    num_warps: int = 4
    num_stages: int = 4
    method: Method = "fused"

    def __post_init__(self) -> None:
        for name in ("block_rows", "block_outputs", "block_inputs"):
            check_one_of(name, getattr(self, name), _TILE_SIZES)
        check_one_of("num_warps", self.num_warps, (1, 2, 4, 8, 16))
        check_one_of("num_stages", self.num_stages, tuple(range(1, 9)))
        check_one_of("method", self.method, get_args(Method))


def find_config(problem: Problem, device: Device, tuned: Path = _TUNED) -> Config:
    """The config for a launch: from the device's table in ``tuned``, else by the rule of thumb.

    In the table a problem stands with its number of rows rounded up to a power of two.

    Raises:
        ValueError: the device's table is not what it should be.
    """
    table = read_table(tuned / table_name(device), Problem, Config)
    return table.get(replace(problem, num_rows=round_up(problem.num_rows))) or _heuristic(problem, device)


def _heuristic(problem: Problem, device: Device) -> Config:
    """Not timed on any device."""
    return Config(block_rows=max(16, min(64, round_up(problem.num_rows))))
