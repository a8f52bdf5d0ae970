"""What the kernel is given: references to arrays, grouped by meaning, and the numbers fixed at compile time."""

from dataclasses import dataclass
from typing import Any

import jax

from pallas_kernels.paged_attention.configs import Config

Ref = Any
"""A reference to an array in the GPU's memory, for which jax has no public type; None where a class says so."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NewTokens:
    """The projections of decode rows' newest tokens, which are not in the cache yet.

    Attributes:
        qkv: [T, H + 2 K, D], before norm and rotation.
        cos, sin: [T, D / 2].
        q_norm, k_norm: [D], weights of the heads' norms; None where the model has none.
    """

    qkv: Ref
    cos: Ref
    sin: Ref
    q_norm: Ref
    k_norm: Ref


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Blocks:
    """Blocks of queries, with the names of ``paged_attention``.

    Attributes:
        first_page: [R].
        start: [N], of a decode row the position of its newest token, or -1 for padding.
        row, length: [N]; None for decode rows, where block n is row n and has one token unless it is padding.
    """

    first_page: Ref
    start: Ref
    row: Ref
    length: Ref


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Inputs:
    """What a program reads.

    Attributes:
        queries: [N, Q, H, D] of tokens that are in the cache, or the newest tokens of decode rows.
        blocks, page_table: where the queries stand, and the pages of their rows.
        pages, scales: the layer's cache.
        arrivals: [tiles, K], zeros; None where no share counts itself in.
        attended: [T, H, D], the array that is to take the result; None for a fresh one, and of decode rows.
    """

    queries: Ref | NewTokens
    blocks: Blocks
    page_table: Ref
    pages: Ref
    scales: Ref
    arrivals: Ref
    attended: Ref


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Partials:
    """What each share of the keys leaves to be merged, in float32.

    Attributes:
        values: [tiles, K, splits, rows, D], sums of weighted values.
        largest, weight: [tiles, K, splits, rows], the largest score in powers of two, and the sum of weights.
    """

    values: Ref
    largest: Ref
    weight: Ref


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Outputs:
    """What a program writes. An array that has the name of an input is the same memory.

    Attributes:
        attended: [T, H, D], of which the blocks' tokens are written; None where a second kernel merges.
        partials: None where the keys are not cut into shares.
        pages, scales: None where no token is appended.
        arrivals: None where no share counts itself in.
    """

    attended: Ref
    partials: Ref
    pages: Ref
    scales: Ref
    arrivals: Ref


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MergeInputs:
    """What the kernel reads that merges after all shares are done; the names are those of the first one."""

    blocks: Blocks
    partials: Partials
    attended: Ref


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MergeOutputs:
    """What that kernel writes."""

    attended: Ref


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """The numbers that are fixed when a launch is compiled.

    Attributes:
        block_q: tokens of one block of queries.
        num_heads, num_kv_heads, head_dim, page_size: H, K, D, S.
        window: keys that a token attends to, or None for all.
        scale: factor of the scores.
        norm_eps: epsilon of the heads' norms.
        num_before: tokens of ``attended`` before those of the first block.
        config: tile sizes.
        interpret: whether the kernel is interpreted instead of compiled, which runs one program after another.
    """

    block_q: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    page_size: int
    window: int | None
    scale: float
    norm_eps: float
    num_before: int
    config: Config
    interpret: bool

    @property
    def group(self) -> int:
        """G, query heads of one kv head."""
        return self.num_heads // self.num_kv_heads

    @property
    def tiles_per_block(self) -> int:
        """Tiles of rows of one block of queries."""
        return -(-self.block_q * self.group // self.config.block_rows)

    @property
    def padded_dim(self) -> int:
        """D up to the next power of two that a matrix product takes."""
        return max(16, 1 << (self.head_dim - 1).bit_length())
