"""The INT4 product as a Triton kernel.

The loop takes S pieces of K a round, and S is the batch axis of the products below, which Triton gives to the warps.
So a tile of few outputs, of which there are enough for all multiprocessors, keeps all its warps busy; what they summed
over their pieces is added up once, at the end. The matrix is the left operand and x the right one: that way a thread
holds few rows of the matrix and needs few scales, and eight rows of x are enough for a tile.

128 + q is exact in bfloat16 and its bits are 0x4300 | q, so no arithmetic takes the bytes apart, and what is 128 too
much goes into the offset: q s + b = (128 + q) s + (b - 128 s). Offsets count once for each group, times the sum of x
over it; a product with ones gives that sum to the threads that need it.

Only ``launch`` imports this module, and late: it needs Triton, which few environments have.
"""

import triton
import triton.language as tl

_PIECE = tl.constexpr(128)
_HALF = tl.constexpr(64)

# Of every four bytes the low halves, the high halves, and ones. The ones come from the bytes too, by name: Triton lays
# an operand out by the load that it comes from, and x can be read in one layout only if all that meets it agrees.
TAKE_APART = tl.constexpr("""{
    .reg .b32 even, odd;
    prmt.b32 even, $6, 0x43434343, 0x4140;
    prmt.b32 odd, $6, 0x43434343, 0x4342;
    and.b32 $0, even, 0xff0fff0f;
    and.b32 $1, odd, 0xff0fff0f;
    shr.b32 even, even, 4;
    shr.b32 odd, odd, 4;
    lop3.b32 $2, even, 0x000f000f, 0x43004300, 0xea;
    lop3.b32 $3, odd, 0x000f000f, 0x43004300, 0xea;
    mov.b32 $4, 0x3f803f80;
    mov.b32 $5, 0x3f803f80;
}""")


@triton.jit
def int4_matmul(
    x,  # [T, K] bfloat16
    values,  # [N, padded K / 2] uint8
    scales,  # [N, groups] float16
    offsets,  # [N, groups] float16
    norm,  # [K] or None
    bias,  # [N] or None
    residual,  # [T, M] or None
    out,  # [T, M]
    num_rows: tl.constexpr,
    num_outputs: tl.constexpr,
    num_inputs: tl.constexpr,
    group_size: tl.constexpr,
    norm_eps: tl.constexpr,
    swiglu: tl.constexpr,
    block_rows: tl.constexpr,
    block_outputs: tl.constexpr,
    block_pieces: tl.constexpr,
    stages: tl.constexpr,
    assembly: tl.constexpr,
):
    """One tile of the result; the grid is (tiles of rows, tiles of columns), rows first, which share the matrix.

    With ``swiglu`` a tile of ``block_outputs`` rows of the matrix is half gates, half what they gate.
    """
    num_pieces: tl.constexpr = (num_inputs + _PIECE - 1) // _PIECE
    # Whether the last round has columns that x does not.
    cut_short: tl.constexpr = num_pieces % block_pieces != 0 or num_pieces * _PIECE != num_inputs
    # Bytes that are loaded together: of one group in their low halves and of one in their high halves.
    section: tl.constexpr = group_size if group_size < _HALF else _HALF
    num_sections: tl.constexpr = _HALF // section
    rows = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    outputs = _matrix_rows(num_outputs, swiglu, block_outputs)
    sums = tl.zeros((block_pieces, block_outputs, block_rows), tl.float32)
    squares = tl.zeros((block_pieces, block_rows, section // 4), tl.float32)
    for first in tl.range(0, num_pieces, block_pieces, num_stages=stages):
        scale = _of_groups(scales, outputs, first, num_pieces, group_size, block_pieces)
        offset = _of_groups(offsets, outputs, first, num_pieces, group_size, block_pieces)
        pieces = (first + tl.arange(0, block_pieces))[:, None, None]
        for i in tl.static_range(num_sections):
            byte = i * section + tl.arange(0, section)[None, None, :]
            address = values + outputs[None, :, None] * (num_pieces * _HALF) + (pieces * _HALF + byte)
            packed = _load(address, pieces < num_pieces, num_pieces % block_pieces != 0)
            low, high, ones = _take_apart(packed, assembly)
            column = pieces * _PIECE + byte
            x_low, squares = _inputs(x, norm, squares, rows, column, num_rows, num_inputs, cut_short)
            x_high, squares = _inputs(x, norm, squares, rows, column + _HALF, num_rows, num_inputs, cut_short)
            if group_size > _HALF:
                s = scale[0]
                sums += tl.dot(high, x_high, tl.dot(low, x_low)) * s
                sums += tl.dot(ones, x_high, tl.dot(ones, x_low)) * (offset[0] - 128 * s)
            else:
                s = scale[i]
                sums += tl.dot(low, x_low) * s
                sums += tl.dot(ones, x_low) * (offset[i] - 128 * s)
                s = scale[num_sections + i]
                sums += tl.dot(high, x_high) * s
                sums += tl.dot(ones, x_high) * (offset[num_sections + i] - 128 * s)
    y = tl.sum(sums, 0)
    if norm is not None:
        y *= tl.rsqrt(tl.sum(tl.sum(squares, 2), 0) / num_inputs + norm_eps)[None, :]
    if bias is not None:
        y += tl.load(bias + outputs).to(tl.float32)[:, None]
    _store(y, residual, out, rows, num_rows, num_outputs, swiglu, block_rows, block_outputs)


@triton.jit
def _matrix_rows(num_outputs: tl.constexpr, swiglu: tl.constexpr, block_outputs: tl.constexpr):
    """The rows of the matrix that the tile needs; where the last tile has too many, one of them again and again."""
    row = tl.arange(0, block_outputs)
    if swiglu:
        half: tl.constexpr = block_outputs // 2
        num_gates: tl.constexpr = num_outputs // 2
        gate = tl.minimum(tl.program_id(1) * half + row % half, num_gates - 1)
        matrix_row = gate + row // half * num_gates
    else:
        matrix_row = tl.minimum(tl.program_id(1) * block_outputs + row, num_outputs - 1)
    return matrix_row


@triton.jit
def _load(address, inside, masked: tl.constexpr):
    """What stands there; where all is known to be inside, with no mask, and else with 0 outside."""
    if masked:
        read = tl.load(address, mask=inside, other=0)
    else:
        read = tl.load(address)
    return read


@triton.jit
def _of_groups(array, outputs, first, num_pieces: tl.constexpr, group_size: tl.constexpr, block_pieces: tl.constexpr):
    """The scales or offsets of the round's groups, each float32 [S, outputs, 1], by their place in a piece.

    They are read as they lie, all that a row has for the round side by side: two bytes alone would be too few for an
    asynchronous copy, and would be waited for.
    """
    per_piece: tl.constexpr = 1 if group_size > _PIECE else _PIECE // group_size
    # More than one where the whole row is one group.
    pieces_per_group: tl.constexpr = group_size // _PIECE if group_size > _PIECE else 1
    num_groups: tl.constexpr = num_pieces * per_piece // pieces_per_group
    group = (first * per_piece + tl.arange(0, block_pieces * per_piece)) // pieces_per_group
    address = array + outputs[:, None] * num_groups + group[None, :]
    read = _load(address, group[None, :] < num_groups, num_pieces % block_pieces != 0)
    read = tl.permute(tl.reshape(read, (outputs.shape[0], block_pieces, per_piece)), (1, 0, 2))
    if per_piece == 1:
        parts = (read.to(tl.float32),)
    elif per_piece == 2:
        low, high = tl.split(read)
        parts = (_factor(low), _factor(high))
    else:
        even, odd = tl.split(tl.reshape(read, (block_pieces, outputs.shape[0], 2, 2)))
        low, high = tl.split(even)
        low_odd, high_odd = tl.split(odd)
        parts = (_factor(low), _factor(low_odd), _factor(high), _factor(high_odd))
    return parts


@triton.jit
def _factor(part):
    return part[:, :, None].to(tl.float32)


@triton.jit
def _take_apart(packed, assembly: tl.constexpr):
    """128 + the low halves, 128 + the high halves, and ones, as bfloat16 in one layout."""
    if assembly:
        low, high, ones = tl.inline_asm_elementwise(
            TAKE_APART,
            "=r,=r,=r,=r,=r,=r,r",
            [packed],
            dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=4,
        )
    else:
        bits = packed.to(tl.uint16)
        low = (0x4300 | bits & 15).to(tl.bfloat16, bitcast=True)
        high = (0x4300 | bits >> 4).to(tl.bfloat16, bitcast=True)
        ones = tl.full(packed.shape, 1, tl.bfloat16)
    return low, high, ones


@triton.jit
def _inputs(x, norm, squares, rows, column, num_rows: tl.constexpr, num_inputs: tl.constexpr, cut_short: tl.constexpr):
    """x, with the norm's weight, [S, columns, rows]; and the sums of squares so far, [S, rows, columns / 4]."""
    inside = rows[None, :, None] < num_rows
    if cut_short:
        inside &= column < num_inputs
    read = tl.load(x + rows[None, :, None] * num_inputs + column, mask=inside, other=0)
    if norm is not None:
        wide = read.to(tl.float32)
        # Four that one thread has: fewer sums to keep than of each column, and nothing to exchange.
        squares += tl.sum(tl.reshape(wide * wide, (wide.shape[0], wide.shape[1], wide.shape[2] // 4, 4)), 3)
        factor = _load(norm + column, column < num_inputs, cut_short)
        read = (wide * factor.to(tl.float32)).to(tl.bfloat16)
    return tl.permute(read, (0, 2, 1)), squares


@triton.jit
def _store(
    y,
    residual,
    out,
    rows,
    num_rows: tl.constexpr,
    num_outputs: tl.constexpr,
    swiglu: tl.constexpr,
    block_rows: tl.constexpr,
    block_outputs: tl.constexpr,
):
    """Write y [outputs, rows], gated and with the residual, to its place."""
    num_columns: tl.constexpr = num_outputs // 2 if swiglu else num_outputs
    width: tl.constexpr = block_outputs // 2 if swiglu else block_outputs
    if swiglu:
        gate, up = tl.split(tl.permute(tl.reshape(y, (2, width, block_rows)), (1, 2, 0)))
        y = gate * tl.sigmoid(gate) * up
    columns = tl.program_id(1) * width + tl.arange(0, width)
    place = rows[:, None] * num_columns + columns[None, :]
    inside = (rows[:, None] < num_rows) & (columns[None, :] < num_columns)
    y = tl.trans(y)
    if residual is not None:
        y += tl.load(residual + place, mask=inside).to(tl.float32)
    tl.store(out + place, y.to(out.dtype.element_ty), mask=inside)
