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


def test_multiply_add_goes_over_the_rows_and_columns_of_the_sums():
    a, b, sums = jnp.array([[2.0], [3.0]]), jnp.array([[5.0, 7.0, 11.0]]), jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert assembly.multiply_add(a, b, sums, compiled=False).tolist() == [[11, 16, 25], [19, 26, 39]]
