"""What one step sends to the device: a single int32 buffer, packed on the host and cut up inside the program.

One transfer per step costs less than a dozen small ones. ``StepLayout`` has the one table of what lies where; the host
writes through it and the compiled programs read through it. Floats and unsigned numbers travel as their bits.

The host packs a step while the device runs the one before, so packing is quick: a column at a time over all rows, since
NumPy takes as long for a scalar as for a short array.

The packed buffer must not change while the step runs: a compiled call on the CPU reads the NumPy memory that it is
given instead of a copy. So ``pack`` makes a fresh buffer for each step and returns it read-only.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import jax
import numpy as np
from jaxtyping import Array, Float, Int32, UInt32

from jaxinfer.batch import Batch, ScheduledRow

_WORD_BYTES = 4
"""Every number of a step has this many bytes, whatever its dtype."""

_MAX_TOP_K = 2**31 - 1
"""The largest number that is sent; a larger ``top_k`` is above any vocabulary too, so it means the same."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SamplingInputs:
    """How the token after each of the B rows is drawn. The fields are those of ``SamplingParams``.

    Attributes:
        temperature: 0 for greedy rows.
        top_k: 0 keeps all.
        top_p, min_p: as in ``SamplingParams``.
        seed: low and high half of each request's 64-bit seed.
        position: index in the sequence of the token to draw, which makes the draw's key differ from step to step.
        sample_slot: the row's slot where the row samples, else the padding's.
    """

    temperature: Float[Array, "B"]
    top_k: Int32[Array, "B"]
    top_p: Float[Array, "B"]
    min_p: Float[Array, "B"]
    seed: UInt32[Array, "B 2"]
    position: Int32[Array, "B"]
    sample_slot: Int32[Array, "B"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TableInputs:
    """The page tables of the B rows in one cache group, as ``paged_attention`` reads them.

    Attributes:
        first_page: for each row how many pages of its sequence left the table at the front.
        page_table: for each row the ids of its pages.
    """

    first_page: Int32[Array, "B"]
    page_table: Int32[Array, "B P"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StepInputs:
    """One step in the fixed shapes of one program: B rows, C chunk tokens in C / block_q blocks.

    Row i is the batch's i-th request, whether it decodes or brings a piece of its prompt.

    Attributes:
        slot: for each row where its last token is kept on the device; the slot after the last is the padding's.
        decode_position: position of the row's decoded token, or -1 where the row decodes none.
        sample_token: index among the B + C tokens whose logits the row samples from.
        chunk_token: ids of the pieces' tokens, each piece padded to whole blocks.
        block_row, block_start, block_len: for each block of the chunk its row, first position and number of tokens.
        tables: the rows' pages, for each cache group.
    """

    slot: Int32[Array, "B"]
    decode_position: Int32[Array, "B"]
    sample_token: Int32[Array, "B"]
    chunk_token: Int32[Array, "C"]
    block_row: Int32[Array, "N"]
    block_start: Int32[Array, "N"]
    block_len: Int32[Array, "N"]
    tables: tuple[TableInputs, ...]


@dataclass(frozen=True, kw_only=True)
class StepLayout:
    """Where each field of a step lies in the packed buffer of the program (B, C).

    Attributes:
        num_rows: B.
        num_chunk_tokens: C, a multiple of ``block_q``, or 0.
        max_chunk_tokens: the largest C of all layouts. Buffers of one B have one size whatever their C, and the fields
            of the rows come first, so that one sample program reads the buffer of any forward program.
        block_q: tokens of one block of the chunk.
        table_widths: P of the page table of each cache group.
        num_slots: slots of the engine; ``num_slots`` itself is the slot of padding.
    """

    num_rows: int
    num_chunk_tokens: int
    max_chunk_tokens: int
    block_q: int
    table_widths: tuple[int, ...]
    num_slots: int

    @cached_property
    def record(self) -> np.dtype[np.void]:
        """The fields of ``StepInputs`` and ``SamplingInputs`` in the buffer's order, as one NumPy record."""
        return self._record(self.num_chunk_tokens)

    @cached_property
    def size(self) -> int:
        """Length of the packed buffer, in int32."""
        return self._record(self.max_chunk_tokens).itemsize // _WORD_BYTES

    def _record(self, num_chunk_tokens: int) -> np.dtype[np.void]:
        rows, tokens, blocks = self.num_rows, num_chunk_tokens, num_chunk_tokens // self.block_q
        of_rows = [
            ("slot", np.int32, (rows,)),
            ("decode_position", np.int32, (rows,)),
            ("sample_token", np.int32, (rows,)),
            ("first_page", np.int32, (len(self.table_widths), rows)),
            *((_table_field(group), np.int32, (rows, width)) for group, width in enumerate(self.table_widths)),
            ("temperature", np.float32, (rows,)),
            ("top_k", np.int32, (rows,)),
            ("top_p", np.float32, (rows,)),
            ("min_p", np.float32, (rows,)),
            ("seed", np.uint32, (rows, 2)),
            ("position", np.int32, (rows,)),
            ("sample_slot", np.int32, (rows,)),
        ]
        of_chunk = [
            ("chunk_token", np.int32, (tokens,)),
            ("block_row", np.int32, (blocks,)),
            ("block_start", np.int32, (blocks,)),
            ("block_len", np.int32, (blocks,)),
        ]
        return np.dtype(of_rows + of_chunk)

    def pack(self, batch: Batch) -> Int32[np.ndarray, "size"]:
        """The batch as a fresh, read-only buffer.

        Raises:
            ValueError: the batch does not fit this layout (a fault of the caller, which picks the layout).
        """
        if len(batch.rows) > self.num_rows or batch.num_chunk_tokens > self.num_chunk_tokens:
            raise ValueError(
                f"a batch of {len(batch.rows)} rows and {batch.num_chunk_tokens} chunk tokens does not fit the program "
                f"of {self.num_rows} rows and {self.num_chunk_tokens} chunk tokens"
            )
        buffer = np.zeros(self.size, np.int32)
        step = np.ndarray((), self.record, buffer)  # each field a view of its part of the buffer, in its own dtype
        self._pack_rows(step, batch)
        self._pack_pieces(step, batch)
        self._pack_sampling(step, batch)
        buffer.flags.writeable = False
        return buffer

    def _pack_rows(self, step: np.ndarray, batch: Batch) -> None:
        """What every row has, and what a decode row has beside it."""
        step["slot"][:] = self.num_slots
        step["slot"][: len(batch.rows)] = [row.request.slot for row in batch.rows]
        for group in range(len(self.table_widths)):
            tables = [row.request.page_tables[group] for row in batch.rows]
            step["first_page"][group, : len(tables)] = [table.first_page for table in tables]
            for entries, table in zip(step[_table_field(group)], tables, strict=False):
                entries[: len(table.pages)] = table.pages
        decode_rows = batch.rows[: batch.num_decode_rows]
        step["decode_position"][:] = -1
        step["decode_position"][: len(decode_rows)] = [row.start for row in decode_rows]
        step["sample_token"][: len(decode_rows)] = range(len(decode_rows))

    def _pack_pieces(self, step: np.ndarray, batch: Batch) -> None:
        """The pieces of prompts, one after another in the chunk, each from the start of a block."""
        for i, row, begin in self.pieces(batch):
            taken = np.arange(0, row.num_tokens, self.block_q)  # tokens of the piece before each of its blocks
            blocks = slice(begin // self.block_q, begin // self.block_q + len(taken))
            step["block_row"][blocks] = i
            step["block_start"][blocks] = row.start + taken
            step["block_len"][blocks] = np.minimum(row.num_tokens - taken, self.block_q)
            step["chunk_token"][begin : begin + row.num_tokens] = row.token_ids
            step["sample_token"][i] = self.num_rows + begin + row.num_tokens - 1

    def pieces(self, batch: Batch) -> Iterator[tuple[int, ScheduledRow, int]]:
        """Each piece of a prompt: the index of its row, the row, and where in the chunk it begins."""
        begin = 0
        for i, row in enumerate(batch.rows[batch.num_decode_rows :], start=batch.num_decode_rows):
            yield i, row, begin
            begin += -(-row.num_tokens // self.block_q) * self.block_q

    def _pack_sampling(self, step: np.ndarray, batch: Batch) -> None:
        """How the rows that sample do it; the others draw greedily into the slot of padding."""
        rows = [row for row in batch.rows if row.samples]
        params = [row.request.params for row in rows]
        at = np.flatnonzero([row.samples for row in batch.rows])
        step["temperature"][at] = [0.0 if p.greedy else p.temperature for p in params]
        step["top_k"][at] = [min(max(p.top_k, 0), _MAX_TOP_K) for p in params]
        step["top_p"][at] = [p.top_p for p in params]
        step["min_p"][at] = [p.min_p for p in params]
        step["seed"][at] = np.array([row.request.seed for row in rows], "<u8").view("<u4").reshape(-1, 2)
        step["position"][at] = [row.start + row.num_tokens for row in rows]
        step["sample_slot"][:] = self.num_slots
        step["sample_slot"][at] = [row.request.slot for row in rows]

    def unpack(self, packed: Int32[Array, "size"]) -> StepInputs:
        """What the forward program reads of a packed buffer, inside the traced program."""
        first_page = self._field(packed, "first_page")
        tables = (
            TableInputs(first_page[group], self._field(packed, _table_field(group)))
            for group in range(len(self.table_widths))
        )
        return StepInputs(**self._fields(packed, StepInputs, but="tables"), tables=tuple(tables))

    def unpack_sampling(self, packed: Int32[Array, "size"]) -> SamplingInputs:
        """What the sample program reads of a packed buffer, inside the traced program."""
        return SamplingInputs(**self._fields(packed, SamplingInputs))

    def _fields(
        self, packed: Array, inputs: type[StepInputs] | type[SamplingInputs], but: str | None = None
    ) -> dict[str, Array]:
        names = (field.name for field in dataclasses.fields(inputs))
        return {name: self._field(packed, name) for name in names if name != but}

    def _field(self, packed: Array, name: str) -> Array:
        """One field, cut out of the buffer and taken for what its bits are."""
        places = self.record.fields
        assert places is not None, "a record has fields"
        field, begin = places[name][:2]
        words = packed[begin // _WORD_BYTES : (begin + field.itemsize) // _WORD_BYTES]
        return jax.lax.bitcast_convert_type(words.reshape(field.shape), field.base)


def _table_field(group: int) -> str:
    """The name in the buffer of one group's page table; the groups' tables have different widths."""
    return f"page_table_{group}"
