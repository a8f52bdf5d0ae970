"""The steps that the kernel has twice, in PTX and in jax: both worked through, by hand and by jax, for every byte."""

import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.quantized_matmul.pallas_gpu import assembly
from tests.pallas_kernels.quantized_matmul.ptx_by_hand import as_bfloat16, carry_out, four_bytes


@pytest.mark.parametrize("high", [False, True])
def test_every_byte_is_taken_apart_alike_by_the_gpu_and_by_the_interpreter(high):
    expected = [128 + (byte >> 4 if high else byte & 15) for byte in range(256)]
    packed = jnp.arange(256, dtype=jnp.uint8).reshape(1, -1)
    interpreted = assembly.numbers_from_128(packed, high=high, compiled=False)
    assert interpreted.dtype == jnp.bfloat16
    assert np.asarray(interpreted, np.float32).ravel().tolist() == expected

    instructions = assembly.HIGH_BITS if high else assembly.LOW_BITS
    words = [carry_out(instructions, {"$2": four_bytes(first)}, num_results=2) for first in range(0, 256, 4)]
    assert np.ravel([as_bfloat16(each) for each in words]).tolist() == expected


@pytest.mark.parametrize("high", [False, True])
def test_four_bits_of_every_byte(high):
    packed = jnp.arange(256, dtype=jnp.uint8).reshape(1, -1)
    bits = assembly.four_bits(packed, high=high)
    assert bits.dtype == jnp.uint8
    assert bits.ravel().tolist() == [byte // 16 if high else byte % 16 for byte in range(256)]


def test_every_signed_byte_is_the_same_number_on_the_gpu_and_in_the_interpreter():
    expected = [byte - 256 if byte > 127 else byte for byte in range(256)]
    values = jnp.asarray(expected, jnp.int8).reshape(1, -1)
    assert assembly.as_bfloat16(values, compiled=False).ravel().tolist() == expected

    ones = {"$3": 0x3F803F80, "$4": 0x3F803F80}
    words = [
        carry_out(assembly.SIGNED_BYTES, {"$2": four_bytes(first)} | ones, num_results=2) for first in range(0, 256, 4)
    ]
    assert np.ravel([as_bfloat16(each) for each in words]).tolist() == expected


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_squares_are_added_in_float32(dtype):
    x, sums = jnp.array([[1.0078125, -3.0]], dtype), jnp.array([[1.0, 2.0]])
    assert assembly.add_squares(x, sums, compiled=False).tolist() == [[1.0078125**2 + 1, 11]]


def test_both_numbers_of_a_word_are_squared():
    x, sums = np.array([1.5, -3.0], jnp.bfloat16), np.array([1.0, 2.0], np.float32)
    words = [int(each) for each in (*x.view("<u4"), *sums.view("<u4"))]
    results = carry_out(assembly.SQUARES, dict(zip(("$2", "$3", "$4"), words, strict=True)), num_results=2)
    assert np.array(results, "<u4").view("<f4").tolist() == [1.5**2 + 1, 11]


def test_multiply_add_goes_over_the_rows_and_columns_of_the_sums():
    a, b, sums = jnp.array([[2.0], [3.0]]), jnp.array([[5.0, 7.0, 11.0]]), jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert assembly.multiply_add(a, b, sums, compiled=False).tolist() == [[11, 16, 25], [19, 26, 39]]
