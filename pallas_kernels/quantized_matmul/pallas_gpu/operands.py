"""What the kernel is given: references to arrays, grouped by meaning, and the numbers fixed at compile time."""

from dataclasses import dataclass
from typing import Any

import jax

from pallas_kernels.quantized_matmul.configs import Config
from pallas_kernels.quantized_matmul.weights import PIECE

_LONGEST_RUN = 64

Ref = Any
"""A reference to an array in the GPU's memory, for which jax has no public type; None where a class says so."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Int8Matrix:
    """An ``Int8Weight``: values [N, padded K], scales [N]."""

    values: Ref
    scales: Ref


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Int4Matrix:
    """An ``Int4Weight``: values uint8 [N, padded K / 2], scales, offsets [N, G]."""

    values: Ref
    scales: Ref
    offsets: Ref


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Inputs:
    """What a program reads.

    Attributes:
        x: [T, K].
        matrix: ``Int8Matrix``, ``Int4Matrix``, or a reference to floats [N, K].
        norm, bias, residual: [K], [N], [T, M]; None where the product has none.
    """

    x: Ref
    matrix: Any
    norm: Ref
    bias: Ref
    residual: Ref


@dataclass(frozen=True)
class Run:
    """Neighbouring inputs of one round of the loop, which one matrix product takes.

    Attributes:
        first: the first of them in the round.
        length: how many they are; a power of two.
        group: of the round's INT4 groups the one that they lie in.
    """

    first: int
    length: int
    group: int


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """The numbers that are fixed when a launch is compiled.

    Attributes:
        num_rows, num_outputs, num_inputs: T, M, K; M is the width of the result.
        stored_inputs: columns of the matrix: K, up to a whole piece in the quantized formats.
        group_size: inputs of an INT4 group; 0 in the other formats.
        swiglu: whether the matrix has 2 M rows, first the gates.
        norm_eps: epsilon of the norm.
        config: tile sizes.
        compiled: whether a GPU runs the kernel, not the interpreter.
    """

    num_rows: int
    num_outputs: int
    num_inputs: int
    stored_inputs: int
    group_size: int
    swiglu: bool
    norm_eps: float
    config: Config
    compiled: bool

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles of rows, which run side by side so that they share what they read of the matrix, and of outputs."""
        return -(-self.num_rows // self.config.block_rows), -(-self.num_outputs // self.config.block_outputs)

    @property
    def num_rounds(self) -> int:
        """Rounds of the loop along K."""
        return -(-self.num_inputs // self.config.block_inputs)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The inputs of a round.

        At most 64: of 128 numbers of the norm's weight the compiler would give each of 128 threads one, which is too
        narrow to be copied ahead. Of INT4 half a piece or half of that, so that a run has one scale: first what the low
        bits of a stretch of bytes hold, then the high bits.
        """
        if not self.group_size:
            length = min(self.config.block_inputs, _LONGEST_RUN)
            return tuple(Run(first, length, 0) for first in range(0, self.config.block_inputs, length))
        length = min(self.group_size, PIECE // 2)
        firsts = (half + first for first in range(0, PIECE // 2, length) for half in (0, PIECE // 2))
        return tuple(Run(first, length, first // self.group_size) for first in firsts)

    @property
    def outputs_first(self) -> bool:
        """Whether a program holds its tile as [outputs, rows], the matrix being the left operand of the products.

        So it is with INT4: a thread then has few outputs and many rows, and few scales to load. Not with the others:
        the left operand of 64 outputs or more goes to Hopper's own instructions, for which INT8 would be copied four
        bytes at a time.
        """
        return self.group_size > 0

    @property
    def groups_per_round(self) -> int:
        """INT4 groups that a round meets."""
        return max(1, PIECE // self.group_size)
