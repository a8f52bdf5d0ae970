"""The queries of one program and the keys that they see."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Bool, Int32

from pallas_kernels.paged_attention.pallas_gpu.operands import Blocks, Geometry, Ref


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A tile of query rows. Row r of a block of queries is its token ``r % Q`` with the group's query head ``r // Q``.

    In this order, since Q is a power of two where G may be none: its divisions are done anew where they are needed, and
    take no register in the loop.

    Attributes:
        index, kv_head, split: which tile of all, which kv head, and which share of the keys.
        block, row: the tile's block of queries, and that block's row of the page table.
        first_token: place of the block's first token in the attended array.
        start: position of the block's first token, -1 for a padded decode row.
        token, head: of each row, its token's place in the block and its query head.
        position: of each row's token.
        is_row: whether a row is one of the block's, and not there to fill up a power of two.
        is_query: whether it also has a token; one that has none gives zeros.
        table_start: position of the first slot of the page table.
        begin, end: the keys in the cache that any query of the block sees.
        column, is_column: places along D, up to a power of two.
    """

    index: Int32[Array, ""]
    kv_head: Int32[Array, ""]
    split: Int32[Array, ""]
    block: Int32[Array, ""]
    row: Int32[Array, ""]
    first_token: Int32[Array, ""]
    start: Int32[Array, ""]
    token: Int32[Array, "rows"]
    head: Int32[Array, "rows"]
    position: Int32[Array, "rows"]
    is_row: Bool[Array, "rows"]
    is_query: Bool[Array, "rows"]
    table_start: Int32[Array, ""]
    begin: Int32[Array, ""]
    end: Int32[Array, ""]
    column: Int32[Array, "D"]
    is_column: Bool[Array, "D"]

    @staticmethod
    def of_program(blocks: Blocks, geometry: Geometry) -> "Tile":
        """The tile of the running program."""
        block_rows, group = geometry.config.block_rows, geometry.group
        index, kv_head, split = (pl.program_id(axis) for axis in range(3))
        block, first_row = index // geometry.tiles_per_block, index % geometry.tiles_per_block * block_rows
        rows = first_row + jnp.arange(block_rows, dtype=jnp.int32)
        token, is_row = rows % geometry.block_q, rows < geometry.block_q * group
        row = block if blocks.row is None else blocks.row[block]
        start = blocks.start[block]
        if blocks.length is None:
            length, end = (start >= 0).astype(jnp.int32), start  # the newest token itself is not in the cache
        else:
            length = blocks.length[block]
            end = start + length
        table_start = blocks.first_page[row] * geometry.page_size
        begin = table_start if geometry.window is None else jnp.maximum(table_start, start - (geometry.window - 1))
        column = jnp.arange(geometry.padded_dim, dtype=jnp.int32)
        return Tile(
            index=index,
            kv_head=kv_head,
            split=split,
            block=block,
            row=row,
            start=start,
            token=token,
            head=kv_head * group + rows // geometry.block_q,
            position=start + token,
            first_token=geometry.num_before + block * geometry.block_q,
            is_row=is_row,
            is_query=is_row & (token < length),
            table_start=table_start,
            begin=begin,
            end=jnp.where(length > 0, end, begin),
            column=column,
            is_column=column < geometry.head_dim,
        )

    def store(self, attended: Ref, values: Array) -> None:
        """Write the tile's rows [rows, D] to their tokens and heads; padding is written as it stands in ``values``."""
        token = self.first_token + self.token
        place = attended.at[token[:, None], self.head[:, None], self.column[None, :]]
        plgpu.store(place, values.astype(attended.dtype), mask=self.is_row[:, None] & self.is_column[None, :])


@dataclass(frozen=True)
class Shares:
    """How the keys of a tile are cut: ``active`` shares of ``size`` tiles of keys each; the last may be short."""

    size: Int32[Array, ""]
    active: Int32[Array, ""]
    num_key_tiles: Int32[Array, ""]

    @staticmethod
    def of(tile: Tile, geometry: Geometry) -> "Shares":
        """Even shares: of few keys fewer than the launch has room for, but always one."""
        num_key_tiles = pl.cdiv(jnp.maximum(tile.end - tile.begin, 0), geometry.config.block_keys)
        size = jnp.maximum(pl.cdiv(num_key_tiles, geometry.config.num_splits), 1)
        return Shares(size, jnp.maximum(pl.cdiv(num_key_tiles, size), 1), num_key_tiles)
