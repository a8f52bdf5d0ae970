"""Tile sizes of the GPU kernel: an explicit ``Config``, else the device's tuned table, else a rule of thumb."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from pallas_kernels.arrays import FLOATS, check_count, check_one_of
from pallas_kernels.device import Device
from pallas_kernels.quantized_matmul.weights import PIECE, Int4Weight, Int8Weight
from pallas_kernels.tuned import check_rounded, read_table, round_up, table_name

Method = Literal["fused", "library"]
"""The kernel; or, for many rows, the matrix as floats once and XLA's own GEMM, which it tries out on the device."""

_TUNED = Path(__file__).with_name("tuned")

_TILE_SIZES = (16, 32, 64, 128, 256)

_MOST_FUSED_ROWS = 64
"""Rows up to which the kernel runs. Of more, XLA tries its GEMMs out on the device, and converts INT8 inside them."""

_MOST_FUSED_INT4_ROWS = 256
"""The same of INT4, which XLA first writes to memory as bfloat16: a weight then moves 4.6 bytes instead of 0.6.

The kernel takes each weight apart once for each tile of 32 rows, in some 6 instructions of a thread. An H100 moves
3.3e12 bytes and issues 3e13 such instructions a second, so that the two ways are even at (4.6 / 3.3) / (6 / 30) = 7
tiles and what the GEMM itself takes: some 250 rows. They are at some 350 rows on an A100, and on an A10 at many more.
"""

_BYTES_IN_FLIGHT = 32 * 1024
"""Of the matrix on one multiprocessor: bandwidth times latency, 25 bytes a nanosecond on an H100 times about 1 us."""

_SHARED_BYTES = 96 * 1024
"""Of a block, below the 99 KB of an A10."""


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

    @classmethod
    def of(cls, x: Any, weight: Any, *, swiglu: bool) -> "Problem":
        """That of a product of activations and a weight as ``matmul`` takes them; shapes alone will do."""
        num_outputs, num_inputs = weight.shape
        match weight:
            case Int8Weight():
                name, group_size = "int8", 0
            case Int4Weight():
                name, group_size = "int4", weight.group_size
            case _:
                name, group_size = weight.dtype.name, 0
        return cls(
            num_rows=x.shape[0],
            num_outputs=num_outputs,
            num_inputs=num_inputs,
            weight=name,
            group_size=group_size,
            swiglu=swiglu,
            dtype=x.dtype.name,
        )

    @property
    def bytes_per_weight(self) -> float:
        """Of the matrix in memory, without scales."""
        return {"float32": 4, "bfloat16": 2, "int8": 1, "int4": 0.5}[self.weight]

    @property
    def matrix_rows_per_output(self) -> int:
        """Rows of the matrix that a column of the result is made of."""
        return 2 if self.swiglu else 1


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
    table = read_table(tuned / table_name(device), Problem, Config, _check_entry)
    return table.get(replace(problem, num_rows=round_up(problem.num_rows))) or _heuristic(problem, device)


def _check_entry(problem: Problem, config: Config) -> None:
    check_rounded("num_rows", problem.num_rows)
    if problem.weight == "int4" and config.method == "fused" and config.block_inputs != PIECE:
        raise ValueError(f"block_inputs is {config.block_inputs}; INT4 is cut into pieces of {PIECE}")


def _heuristic(problem: Problem, device: Device) -> Config:
    """Tiles that keep to the limits of ``docs/gpu-static.md`` on all targets: no spilled register, and the shared
    memory of the smallest. None of it was timed.
    """
    most_fused_rows = _MOST_FUSED_INT4_ROWS if problem.weight == "int4" else _MOST_FUSED_ROWS
    if problem.num_rows > most_fused_rows:
        return Config(block_rows=64, method="library")
    if problem.dtype == "float32":
        # The products are exact, without tensor cores, and for comparisons only.
        return Config(
            block_rows=16,
            block_outputs=32 // problem.matrix_rows_per_output,
            block_inputs=128 if problem.weight == "int4" else 32,
            num_warps=8 if problem.weight == "int4" else 4,
            num_stages=2,
        )
    is_int4 = problem.weight == "int4"
    block_rows = max(16, min(32 if is_int4 else 64, round_up(problem.num_rows)))
    block_inputs = 128 if is_int4 or (problem.weight == "int8" and block_rows == 16) else 64
    matrix_rows = _matrix_rows(problem, block_rows, device)
    # With 8 warps a tile of 16 rows and 64 inputs, a run, would come in copies of less than 16 bytes.
    wants_8_warps = matrix_rows == 128 and not is_int4 and block_rows > 16
    return Config(
        block_rows=block_rows,
        block_outputs=matrix_rows // problem.matrix_rows_per_output,
        block_inputs=block_inputs,
        num_warps=8 if wants_8_warps else 4,
        num_stages=_num_stages(problem, block_rows, matrix_rows, block_inputs, device),
    )


def _matrix_rows(problem: Problem, block_rows: int, device: Device) -> int:
    """Rows of the matrix of a tile: those with which the busiest multiprocessor has least to do.

    A program's work grows with them, and with what it does to its tile of x whatever their number: load it, norm it,
    sum it up. By the instructions of the compiled kernels and by the bytes of both, the latter is worth about so many
    rows of the matrix as the rows of x are bytes wide at the width of a weight. Of two that are even the narrower: more
    multiprocessors load at a time.
    """
    x_rows = int(block_rows * 2 / problem.bytes_per_weight)

    def work(matrix_rows: int) -> int:
        programs = _num_programs(problem, block_rows, matrix_rows)
        return -(-programs // device.num_cores) * (matrix_rows + x_rows)

    few_registers = problem.weight == "int4" and block_rows == 16
    return min((32, 64) if few_registers else (32, 64, 128), key=work)


def _num_programs(problem: Problem, block_rows: int, matrix_rows: int) -> int:
    return -(-problem.num_rows // block_rows) * -(-problem.num_outputs // matrix_rows)


def _num_stages(problem: Problem, block_rows: int, matrix_rows: int, block_inputs: int, device: Device) -> int:
    """So many that a multiprocessor has ``_BYTES_IN_FLIGHT`` of the matrix under way, as far as shared memory goes.

    One stage of them is the round that is computed. Beside the stages converted numbers may lie there: those of a run
    of INT4, and those of INT8 where Hopper's own instructions, from 64 rows on, read them from there.
    """
    matrix_bytes = int(matrix_rows * block_inputs * problem.bytes_per_weight)
    x_bytes = block_rows * block_inputs * 2
    programs_per_core = max(1, _num_programs(problem, block_rows, matrix_rows) // device.num_cores)
    wanted = 1 + -(-_BYTES_IN_FLIGHT // (matrix_bytes * programs_per_core))
    room = (_SHARED_BYTES - matrix_rows * 64 * 2) // (matrix_bytes + x_bytes)
    return min(max(3, wanted), room, 8)
