"""Matrices as a file holds them quantized: what they mean, by the definition, and taken apart by rows."""

import numpy as np
import pytest

from checkpoints.stored_rows import Int4Rows, Int8Rows
from jaxinfer.config import Quantization

GROUPS = (32, 64, 128, None)
WIDTHS = (576, 172, 128, 5)


def int8_rows(num_inputs, num_outputs=7):
    rng = np.random.default_rng(num_inputs)
    values = rng.integers(-127, 128, (num_outputs, num_inputs)).astype(np.int8)
    return Int8Rows(values=values, scales=rng.uniform(0.1, 2, num_outputs).astype(np.float32))


def int4_rows(num_inputs, group_size, num_outputs=7):
    rng = np.random.default_rng(num_inputs)
    groups = (num_outputs, -(-num_inputs // (group_size or num_inputs)))
    return Int4Rows(
        values=rng.integers(0, 16, (num_outputs, num_inputs)).astype(np.uint8),
        scales=rng.uniform(0.1, 2, groups).astype(np.float16),
        offsets=rng.uniform(-9, 9, groups).astype(np.float16),
        group_size=group_size,
    )


@pytest.mark.parametrize("num_inputs", WIDTHS)
def test_int8_rows_mean_number_times_scale(num_inputs):
    rows = int8_rows(num_inputs)
    assert (rows.shape, rows.quantization) == ((7, num_inputs), Quantization(bits=8))
    found = rows.dequantized()
    assert found.dtype == np.float32
    for n, k in np.ndindex(found.shape):
        assert found[n, k] == np.float32(int(rows.values[n, k])) * rows.scales[n]


@pytest.mark.parametrize("group_size", GROUPS)
@pytest.mark.parametrize("num_inputs", WIDTHS)
def test_int4_rows_mean_number_times_scale_and_offset_of_the_group(num_inputs, group_size):
    """The last group of a row may be cut short."""
    rows = int4_rows(num_inputs, group_size)
    assert (rows.shape, rows.quantization) == ((7, num_inputs), Quantization(bits=4, group_size=group_size))
    found = rows.dequantized()
    assert (found.shape, found.dtype) == (rows.shape, np.float32)
    for n, k in np.ndindex(found.shape):
        group = k // group_size if group_size else 0
        scale, offset = float(rows.scales[n, group]), float(rows.offsets[n, group])
        assert found[n, k] == np.float32(int(rows.values[n, k]) * scale + offset)


@pytest.mark.parametrize("rows", [int8_rows(172), int4_rows(172, 32), int4_rows(172, None)], ids=["int8", "32", "row"])
def test_other_rows_are_those_of_the_columns(rows):
    order = np.array([3, 0, 6, 6])
    other = rows.with_columns(*(column[order] for column in rows.columns()))
    assert other.quantization == rows.quantization
    np.testing.assert_array_equal(other.dequantized(), rows.dequantized()[order])
