"""What one step sends to the device: a single int32 buffer, packed on the host and cut up inside the program.

One transfer per step costs less than a dozen small ones. ``StepLayout`` is the one place that knows which field lies
where; the host writes through it and the compiled programs read through it. Floats travel as their bits.

The packed buffer must not change while the step runs: a compiled call on the CPU reads the NumPy memory that it is
given instead of a copy. So ``pack`` makes a fresh buffer for each step and returns it read-only.
"""

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int32, UInt32

from jaxinfer.scheduler import Batch, ScheduledRow


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
class StepInputs:
    """One step in the fixed shapes of one program: B rows, C chunk tokens in C / block_q blocks.

    Row i is the batch's i-th request, whether it decodes or brings a piece of its prompt.

    Attributes:
        slot: for each row where its last token is kept on the device; the slot after the last is the padding's.
        decode_position: position of the row's decoded token, or -1 where the row decodes none.
        sample_token: index among the B + C tokens whose logits the row samples from.
        first_page, page_table: the row's pages, as ``paged_attention`` reads them.
        chunk_token: ids of the pieces' tokens, each piece padded to whole blocks.
        block_row, block_start, block_len: for each block of the chunk its row, first position and number of tokens.
    """

    slot: Int32[Array, "B"]
    decode_position: Int32[Array, "B"]
    sample_token: Int32[Array, "B"]
    first_page: Int32[Array, "B"]
    page_table: Int32[Array, "B P"]
    chunk_token: Int32[Array, "C"]
    block_row: Int32[Array, "N"]
    block_start: Int32[Array, "N"]
    block_len: Int32[Array, "N"]


@dataclass(frozen=True, kw_only=True)
class StepLayout:
    """Where each field of a step lies in the packed buffer of the program (B, C).

    Attributes:
        num_rows: B.
        num_chunk_tokens: C, a multiple of ``block_q``, or 0.
        max_chunk_tokens: the largest C of all layouts. Buffers of one B have one size whatever their C, and the fields
            of the rows come first, so that one sample program reads the buffer of any forward program.
        block_q: tokens of one block of the chunk.
        pages_per_seq: P, the width of the page table.
        num_slots: slots of the engine; ``num_slots`` itself is the slot of padding.
        page_size: S.
    """

    num_rows: int
    num_chunk_tokens: int
    max_chunk_tokens: int
    block_q: int
    pages_per_seq: int
    num_slots: int
    page_size: int

    @cached_property
    def fields(self) -> dict[str, tuple[slice, tuple[int, ...]]]:
        """For each field its part of the buffer and its shape."""
        rows, blocks = (self.num_rows,), (self.num_chunk_tokens // self.block_q,)
        shapes = {
            "slot": rows,
            "decode_position": rows,
            "sample_token": rows,
            "sample_slot": rows,
            "first_page": rows,
            "temperature": rows,
            "top_k": rows,
            "top_p": rows,
            "min_p": rows,
            "seed": (self.num_rows, 2),
            "position": rows,
            "page_table": (self.num_rows, self.pages_per_seq),
            "chunk_token": (self.num_chunk_tokens,),
            "block_row": blocks,
            "block_start": blocks,
            "block_len": blocks,
        }
        fields, begin = {}, 0
        for name, shape in shapes.items():
            end = begin + math.prod(shape)
            fields[name] = (slice(begin, end), shape)
            begin = end
        return fields

    @cached_property
    def size(self) -> int:
        """Length of the packed buffer, in int32."""
        chunk_fields = self.max_chunk_tokens + 3 * (self.max_chunk_tokens // self.block_q)
        return self.fields["chunk_token"][0].start + chunk_fields

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
        host = {name: buffer[part].reshape(shape) for name, (part, shape) in self.fields.items()}
        for name in ("slot", "sample_slot"):
            host[name][:] = self.num_slots
        host["decode_position"][:] = -1
        chunk_begin = 0
        for i, row in enumerate(batch.rows):
            self._pack_row(host, i, row)
            if row.token_ids is None:
                host["decode_position"][i] = row.start
                host["sample_token"][i] = i
            else:
                host["sample_token"][i] = self.num_rows + chunk_begin + len(row.token_ids) - 1
                chunk_begin = self._pack_piece(host, i, row, chunk_begin)
        buffer.flags.writeable = False
        return buffer

    def _pack_row(self, host: dict[str, np.ndarray], i: int, row: ScheduledRow) -> None:
        request, params = row.request, row.request.params
        host["slot"][i] = request.slot
        host["page_table"][i, : len(request.pages)] = request.pages
        if row.samples:
            host["sample_slot"][i] = request.slot
            host["temperature"].view(np.float32)[i] = 0.0 if params.greedy else params.temperature
            host["top_k"][i] = max(params.top_k, 0)
            host["top_p"].view(np.float32)[i] = params.top_p
            host["min_p"].view(np.float32)[i] = params.min_p
            host["seed"].view(np.uint32)[i] = request.seed & 0xFFFFFFFF, request.seed >> 32
            host["position"][i] = row.start + row.num_tokens

    def _pack_piece(self, host: dict[str, np.ndarray], i: int, row: ScheduledRow, begin: int) -> int:
        """Write a piece of a prompt to the chunk from token ``begin`` and return where the next one begins."""
        assert row.token_ids is not None
        length = len(row.token_ids)
        host["chunk_token"][begin : begin + length] = row.token_ids
        for taken in range(0, length, self.block_q):
            block = (begin + taken) // self.block_q
            host["block_row"][block] = i
            host["block_start"][block] = row.start + taken
            host["block_len"][block] = min(self.block_q, length - taken)
        return begin + -(-length // self.block_q) * self.block_q

    def unpack(self, packed: Int32[Array, "size"]) -> StepInputs:
        """What the forward program reads of a packed buffer, inside the traced program."""
        return StepInputs(**{name: self._field(packed, name) for name in _names(StepInputs)})

    def unpack_sampling(self, packed: Int32[Array, "size"]) -> SamplingInputs:
        """What the sample program reads of a packed buffer, inside the traced program."""
        field = {name: self._field(packed, name) for name in _names(SamplingInputs)}
        for name in ("temperature", "top_p", "min_p"):
            field[name] = jax.lax.bitcast_convert_type(field[name], jnp.float32)
        field["seed"] = jax.lax.bitcast_convert_type(field["seed"], jnp.uint32)
        return SamplingInputs(**field)

    def _field(self, packed: Array, name: str) -> Array:
        part, shape = self.fields[name]
        return packed[part].reshape(shape)


def _names(inputs: type[StepInputs] | type[SamplingInputs]) -> list[str]:
    return [field.name for field in dataclasses.fields(inputs)]
