"""Steps for which the compiler would take more instructions than the GPU needs, in PTX.

The loop of INT4 is where they count: the memory of a GPU delivers a weight in the time of some five instructions. The
interpreter runs no assembly, so every step has a second body in jax, for what is not compiled.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, BFloat16, Float, Float32, Int8, Shaped, UInt8

# A byte 0x43 is set above the low or high bits of each byte of $2, which makes four bfloat16 in $0 and $1.
LOW_BITS = """{
    .reg .b32 bits;
    and.b32 bits, $2, 0x0f0f0f0f;
    prmt.b32 $0, bits, 0x43434343, 0x4140;
    prmt.b32 $1, bits, 0x43434343, 0x4342;
}"""
HIGH_BITS = """{
    .reg .b32 bits;
    shr.b32 bits, $2, 4;
    and.b32 bits, bits, 0x0f0f0f0f;
    prmt.b32 $0, bits, 0x43434343, 0x4140;
    prmt.b32 $1, bits, 0x43434343, 0x4342;
}"""

# A byte of $2 is m - 128 s, s its highest bit: from 128 + m is taken 128 or, with s, 256. $3 and $4 are ones.
SIGNED_BYTES = """{
    .reg .b32 even, odd, less, more;
    prmt.b32 even, $2, 0x43434343, 0x4140;
    prmt.b32 odd, $2, 0x43434343, 0x4342;
    lop3.b32 less, even, 0xff80ff80, 0x80008000, 0x6a;
    lop3.b32 more, odd, 0xff80ff80, 0x80008000, 0x6a;
    and.b32 even, even, 0xff7fff7f;
    and.b32 odd, odd, 0xff7fff7f;
    fma.rn.bf16x2 $0, even, $3, less;
    fma.rn.bf16x2 $1, odd, $4, more;
}"""

# A bfloat16 is the upper half of a float32.
SQUARES = """{
    .reg .b32 even, odd;
    shl.b32 even, $2, 16;
    and.b32 odd, $2, 0xffff0000;
    fma.rn.f32 $0, even, even, $3;
    fma.rn.f32 $1, odd, odd, $4;
}"""


def numbers_from_128(
    packed: UInt8[Array, "rows bytes"], *, high: bool, compiled: bool
) -> BFloat16[Array, "rows bytes"]:
    """128 + q of the low or the high four bits q of each byte. Its bits are 0x4300 + q, so no arithmetic is needed."""
    if compiled:
        return _by(HIGH_BITS if high else LOW_BITS, [packed], "=r,=r,r", at_once=4, dtype=jnp.bfloat16)
    return (128 + four_bits(packed, high=high).astype(jnp.int32)).astype(jnp.bfloat16)


def as_bfloat16(values: Int8[Array, "rows columns"], *, compiled: bool) -> BFloat16[Array, "rows columns"]:
    """The same numbers.

    The compiler's own way is to convert integers, which a GPU does at a fraction of the rate of other instructions.
    """
    if not compiled:
        return values.astype(jnp.bfloat16)
    ones = jnp.ones(values.shape, jnp.bfloat16)
    return _by(SIGNED_BYTES, [values, ones], "=r,=r,r,r,r", at_once=4, dtype=jnp.bfloat16)


def four_bits(packed: UInt8[Array, "rows bytes"], *, high: bool) -> UInt8[Array, "rows bytes"]:
    """The low or the high four bits of each byte."""
    return jax.lax.shift_right_logical(packed, jnp.uint8(4)) if high else packed & jnp.uint8(15)


def multiply_add(
    a: Float32[Array, "#m #n"], b: Float32[Array, "#m #n"], sums: Float32[Array, "m n"], *, compiled: bool
) -> Float32[Array, "m n"]:
    """a b + sums, in one instruction where compiled, and so rounded once; jax's own compiler makes two of it."""
    if not compiled:
        return a * b + sums
    factors = [jnp.broadcast_to(each, sums.shape) for each in (a, b)]
    return _by("fma.rn.f32 $0, $1, $2, $3;", [*factors, sums], "=f,f,f,f", at_once=1, dtype=jnp.float32)


def add_squares(x: Float[Array, "m n"], sums: Float32[Array, "m n"], *, compiled: bool) -> Float32[Array, "m n"]:
    """x^2 + sums, in float32."""
    if compiled and x.dtype == jnp.bfloat16:
        return _by(SQUARES, [x, sums], "=f,=f,r,f,f", at_once=2, dtype=jnp.float32)
    x32 = x.astype(jnp.float32)
    return multiply_add(x32, x32, sums, compiled=compiled)


def times(x: Float[Array, "m n"], factors: Float[Array, "#m #n"], *, compiled: bool) -> Float[Array, "m n"]:
    """x times the factors, rounded once to the type of x.

    A product of two bfloat16 is exact in float32, so both bodies give the same bits. Compute capability 8 has the
    packed product only with a sum: 0 is added, the one below zero, which changes no product.
    """
    if not compiled or {x.dtype, factors.dtype} != {jnp.dtype(jnp.bfloat16)}:
        return (x * factors).astype(x.dtype)
    operands = [x, jnp.broadcast_to(factors, x.shape), jnp.full(x.shape, -0.0, x.dtype)]
    return _by("fma.rn.bf16x2 $0, $1, $2, $3;", operands, "=r,r,r,r", at_once=2, dtype=x.dtype)


def _by(
    assembly: str, arrays: list[Shaped[Array, "m n"]], registers: str, *, at_once: int, dtype: Any
) -> Shaped[Array, "m n"]:
    """What the instructions make of the arrays, ``at_once`` elements at a time.

    The registers are listed as in LLVM: the results', then the arguments'; ``r`` has 32 bits, ``f`` is a float.
    """
    results = [jax.ShapeDtypeStruct(arrays[0].shape, dtype)]
    (result,) = plgpu.elementwise_inline_asm(
        assembly, args=arrays, constraints=registers, pack=at_once, result_shape_dtypes=results
    )
    return result
