"""The tensors of ``compressed-tensors``: packed numbers, or one number a byte.

Packed: ``weight_packed`` int32 [N, ceil(K bits / 32)] along the inputs and ``weight_zero_point`` int32
[ceil(N bits / 32), G] along the outputs, from the lowest bits up, with 2^(bits - 1) added, as the numbers are signed;
``weight_shape`` [2] is (N, K). Not packed: ``weight`` and ``weight_zero_point`` int8, without that. Both:
``weight_scale`` [N, G], or one for all, and ``weight_g_idx`` int32 [K] where inputs are grouped out of order. The
library's first versions wrote zero points of packed numbers as int8 [N, G].
"""

import reprlib

import numpy as np

from checkpoints.packed.bits import unpack
from checkpoints.packed.config import CompressedTensors, Scheme, told
from checkpoints.packed.matrix import PackedMatrix, count_groups, read_group_of_input, within_row
from checkpoints.packed.parts import FLOATS, WORDS, Parts

PARTS = ("weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx")

ACTIVATION_PARTS = ("input_scale", "input_zero_point", "output_scale", "output_zero_point")
"""Of what a product takes and gives."""

KV_CACHE_PARTS = tuple(f"{kind}_{what}" for kind in ("q", "k", "v", "output") for what in ("scale", "zero_point"))
"""Of an attention, or, as the first versions have it, of what the products for k and v give."""

_METHOD = "compressed-tensors"
_NO_GROUP = -1
"""What the library fills ``weight_g_idx`` with; it, too, takes inputs to be in order where one such number is left."""

_SHAPE_DTYPES = ("I64", "I32")


def open_matrix(parts: Parts, packing: CompressedTensors) -> PackedMatrix:
    """The matrix of one module; its numbers are read later.

    Raises:
        ValueError: a part is missing, of a wrong type or shape, the shapes fit no scheme of the configuration or
            several, or ``weight_g_idx`` names a group that is not there.
    """
    is_packed = parts.has("weight_packed") or parts.has("weight_shape")
    shape = _packed_shape(parts) if is_packed else parts.matrix("weight", ("I8",))
    scheme = _scheme(parts, packing, shape, is_packed)
    num_groups = count_groups(shape[1], scheme.group_size)
    has_zeros = parts.has("weight_zero_point")
    if has_zeros:
        _check_zeros(parts, scheme, shape, num_groups, is_packed)
    return PackedMatrix(
        parts=parts,
        method=_METHOD,
        shape=shape,
        bits=scheme.bits,
        group_size=scheme.group_size,
        group_of_input=read_group_of_input(parts, "weight_g_idx", shape[1], scheme.group_size, unset=_NO_GROUP),
        scale_dtype=parts.dtype("weight_scale"),
        read_numbers=lambda: _read_numbers(parts, scheme, shape, is_packed),
        read_zeros=lambda: _read_zeros(parts, scheme, (shape[0], num_groups), has_zeros),
        read_scales=lambda: np.broadcast_to(parts.read("weight_scale"), (shape[0], num_groups)),
    )


def _packed_shape(parts: Parts) -> tuple[int, int]:
    """(N, K) as written; that the packed numbers are as many follows from the scheme."""
    num_rows, _ = parts.matrix("weight_packed", WORDS)
    parts.check("weight_shape", _SHAPE_DTYPES, (2,), "the numbers of outputs and inputs")
    num_outputs, num_inputs = (int(number) for number in parts.read("weight_shape"))
    if num_outputs != num_rows or num_inputs < 1:
        raise parts.error(f"weight_shape is [{num_outputs}, {num_inputs}]; weight_packed has {num_rows} rows")
    return num_outputs, num_inputs


def _scheme(parts: Parts, packing: CompressedTensors, shape: tuple[int, int], is_packed: bool) -> Scheme:
    """The scheme of the configuration that the tensors follow."""
    num_outputs, num_inputs = shape
    if not parts.has("weight_scale"):
        raise parts.error("weight_scale is missing")
    scale_shape, has_zeros = parts.shape("weight_scale"), parts.has("weight_zero_point")
    found = set()
    for scheme in packing.schemes:
        num_words = -(-num_inputs * scheme.bits // 32)
        num_groups = count_groups(num_inputs, scheme.group_size)
        is_one_for_all = scheme.group_size is None and scale_shape in ((), (1,))
        if (
            (not is_packed or parts.shape("weight_packed")[1] == num_words)
            and (scale_shape == (num_outputs, num_groups) or is_one_for_all)
            and (scheme.symmetric or has_zeros)
        ):
            # Different schemes may mean the same here. What is not packed is 8 bits, be the numbers smaller.
            group_size, bits = within_row(num_inputs, scheme.group_size), scheme.bits if is_packed else 8
            found.add(Scheme(bits=bits, group_size=group_size, symmetric=not has_zeros))
    if len(found) != 1:
        packed = f"weight_packed {parts.shape('weight_packed')}, " if is_packed else ""
        zeros = "zero points" if has_zeros else "no zero points"
        raise parts.error(
            f"{packed}weight_scale {reprlib.repr(scale_shape)} and {zeros} of a matrix [{num_outputs}, {num_inputs}] "
            f"fit {len(found) or 'none'} of the configuration's schemes, {told(packing)}; they must fit one"
        )
    parts.check("weight_scale", FLOATS, scale_shape, "as it is")
    return found.pop()


def _check_zeros(parts: Parts, scheme: Scheme, shape: tuple[int, int], num_groups: int, is_packed: bool) -> None:
    num_outputs, num_inputs = shape
    why = f"as [{num_outputs}, {num_inputs}] has it"
    if is_packed and parts.dtype("weight_zero_point") != "I8":
        parts.check("weight_zero_point", WORDS, (-(-num_outputs * scheme.bits // 32), num_groups), why)
    elif parts.shape("weight_scale") == (num_outputs, num_groups):
        parts.check("weight_zero_point", ("I8",), (num_outputs, num_groups), why)
    else:
        parts.check("weight_zero_point", ("I8",), parts.shape("weight_scale"), "as weight_scale has it")


def _read_numbers(parts: Parts, scheme: Scheme, shape: tuple[int, int], is_packed: bool) -> np.ndarray:
    if is_packed:
        return unpack(parts.read("weight_packed"), scheme.bits)[:, : shape[1]]
    return parts.read("weight").view(np.uint8) ^ np.uint8(128)  # adds 128 to a signed number


def _read_zeros(parts: Parts, scheme: Scheme, shape: tuple[int, int], has_zeros: bool) -> np.ndarray:
    middle = 2 ** (scheme.bits - 1)
    if not has_zeros:
        return np.full(shape, middle, np.int16)
    if parts.dtype("weight_zero_point") in WORDS:
        return unpack(parts.read("weight_zero_point").T, scheme.bits)[:, : shape[0]].T
    return np.broadcast_to(parts.read("weight_zero_point"), shape).astype(np.int16) + np.int16(middle)
