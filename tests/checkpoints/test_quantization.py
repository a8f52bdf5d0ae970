"""Rounding to nearest, held against the definition: of all numbers that a format has, the nearest one."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from checkpoints import PRESETS
from checkpoints.quantization import abstract_weights, num_bytes, on_device, packed, quantize
from checkpoints.random_weights import random_weights
from jaxinfer.config import Quantization
from jaxinfer.weights import EMBEDDINGS, formats_of
from pallas_kernels.quantized_matmul import Int4Weight, dequantize
from tests.checkpoints.test_stored_rows import int4_rows, int8_rows
from tests.checkpoints.writers import CONFIG

INT8 = Quantization(bits=8)
GROUPS = (32, 64, 128, None)
WIDTHS = (576, 172, 128, 5)


def int4(group_size):
    return Quantization(bits=4, group_size=group_size)


def drawn(num_inputs, num_outputs=7):
    rng = np.random.default_rng(num_inputs)
    spread = np.exp(rng.normal(0, 1, (num_outputs, 1)))
    return (rng.standard_normal((num_outputs, num_inputs)) * spread + 0.3).astype(np.float32)


def nibbles(weight: Int4Weight) -> np.ndarray:
    """q [N, padded K] by the definition: byte j of a piece has number j low and number 64 + j high."""
    values = np.asarray(weight.values)
    q = np.zeros((len(values), 2 * values.shape[1]), int)
    for k in range(q.shape[1]):
        piece, place = divmod(k, 128)
        byte = values[:, piece * 64 + place % 64]
        q[:, k] = byte % 16 if place < 64 else byte // 16
    return q


@pytest.mark.parametrize("num_inputs", WIDTHS)
def test_int8_is_the_nearest_of_255_numbers(num_inputs):
    matrix = drawn(num_inputs)
    weight = quantize(jnp.asarray(matrix), INT8)
    assert weight.shape == matrix.shape
    values, scales = np.asarray(weight.values).astype(float), np.asarray(weight.scales).astype(float)
    np.testing.assert_allclose(scales, np.abs(matrix).max(axis=1) / 127, rtol=1e-6)
    assert np.abs(values).max(axis=1).tolist() == [127] * len(matrix)
    assert (np.abs(matrix - values[:, :num_inputs] * scales[:, None]) <= scales[:, None] * 0.50001).all()
    assert values.shape[1] % 128 == 0
    assert not values[:, num_inputs:].any()


@pytest.mark.parametrize("group_size", GROUPS)
@pytest.mark.parametrize("num_inputs", WIDTHS)
def test_int4_is_the_nearest_of_the_16_numbers_of_its_group(num_inputs, group_size):
    matrix = drawn(num_inputs)
    weight = quantize(jnp.asarray(matrix), int4(group_size))
    width = -(-num_inputs // 128) * 128
    assert weight.shape == matrix.shape
    assert weight.group_size == (group_size or width)
    assert weight.scales.shape == (len(matrix), width // weight.group_size)
    q = nibbles(weight)
    for k in range(num_inputs):
        group = k // weight.group_size
        scale, offset = (np.asarray(x)[:, group].astype(float) for x in (weight.scales, weight.offsets))
        choices = np.abs(np.arange(16) * scale[:, None] + offset[:, None] - matrix[:, k, None])
        chosen = np.take_along_axis(choices, q[:, k, None], axis=1)[:, 0]
        assert (chosen <= choices.min(axis=1) + 1e-5 * np.abs(matrix).max()).all(), k
        inside = matrix[:, group * weight.group_size : (group + 1) * weight.group_size]
        np.testing.assert_allclose(offset, inside.min(axis=1), rtol=1e-3)
        np.testing.assert_allclose(scale, np.ptp(inside, axis=1) / 15, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("quantization", [INT8, int4(64), int4(None)])
@pytest.mark.parametrize("value", [0.0, 0.25, -3.0])
def test_numbers_that_are_all_alike_stay_what_they_are(quantization, value):
    matrix = jnp.full((3, 200), value)
    np.testing.assert_allclose(dequantize(quantize(matrix, quantization), jnp.float32), matrix, rtol=1e-6)


@pytest.mark.parametrize("quantization", [INT8, int4(64)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(7, 200), (8, 576), (576, 64), (1, 128)])
def test_a_matrix_that_is_not_finite_is_named(quantization, value, shape):
    """In any place: the maximum of a large row, as XLA computes it on a CPU, passes over a NaN."""
    rng = np.random.default_rng(0)
    for _ in range(4):
        matrix = rng.standard_normal(shape).astype(np.float32)
        matrix[rng.integers(shape[0]), rng.integers(shape[1])] = value
        with pytest.raises(
            ValueError, match=r"layers\.1\.down cannot be quantized: some of its numbers are not finite"
        ):
            on_device("layers.1.down", matrix, quantization)


@pytest.mark.parametrize("factor", [1e6, 1e-8])
def test_numbers_beyond_float16_are_refused_for_int4_alone(factor):
    matrix = drawn(200) * np.float32(factor)
    on_device("layers.0.qkv", matrix, INT8)
    with pytest.raises(ValueError, match=r"layers\.0\.qkv cannot be quantized to 4 bits: its largest number is"):
        on_device("layers.0.qkv", matrix, int4(64))


@pytest.mark.parametrize("largest", [2.0**-14, 32000.0])
def test_the_largest_and_the_smallest_matrices_that_int4_takes_are_right(largest):
    matrix = drawn(256)
    matrix *= np.float32(largest / np.abs(matrix).max())
    weight = on_device("layers.0.qkv", matrix, int4(64))
    step = np.ptp(matrix.reshape(len(matrix), -1, 64), axis=2).max() / 15
    assert np.abs(np.asarray(dequantize(weight, jnp.dtype(jnp.float32))) - matrix).max() < 0.6 * step


@pytest.mark.parametrize("num_inputs", WIDTHS)
def test_int8_rows_of_a_file_are_packed_number_for_number(num_inputs):
    rows = int8_rows(num_inputs)
    weight = packed(rows)
    assert weight.shape == rows.shape
    assert weight.values.shape[1] == -(-num_inputs // 128) * 128
    np.testing.assert_array_equal(weight.values[:, :num_inputs], rows.values)
    assert not np.asarray(weight.values)[:, num_inputs:].any()
    np.testing.assert_array_equal(weight.scales, rows.scales)
    np.testing.assert_array_equal(dequantize(weight, jnp.dtype(jnp.float32)), rows.dequantized())


@pytest.mark.parametrize("group_size", GROUPS)
@pytest.mark.parametrize("num_inputs", WIDTHS)
def test_int4_rows_of_a_file_are_packed_number_for_number(num_inputs, group_size):
    """Into the very shapes that rounding gives, the groups that are missing at the end filled with what is finite."""
    rows = int4_rows(num_inputs, group_size)
    weight, rounded = packed(rows), quantize(jnp.zeros(rows.shape), rows.quantization)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), weight) == jax.tree.map(lambda x: (x.shape, x.dtype), rounded)
    assert (weight.shape, weight.group_size) == (rows.shape, rounded.group_size)
    np.testing.assert_array_equal(nibbles(weight)[:, :num_inputs], rows.values)
    for found, expected in ((weight.scales, rows.scales), (weight.offsets, rows.offsets)):
        np.testing.assert_array_equal(found[:, : expected.shape[1]], expected)
        assert np.isfinite(found).all()
    np.testing.assert_array_equal(dequantize(weight, jnp.dtype(jnp.float32)), rows.dequantized())


def test_embedding_and_head_are_quantized_only_where_it_is_asked_for():
    config = replace(CONFIG, tie_embeddings=False, qkv_bias=True, qk_norm=True)
    matrices = {"qkv", "attention_out", "gate_up", "down"}
    formats = formats_of(config, INT8)
    assert {name.split(".")[-1] for name in formats} == matrices
    assert len(formats) == 4 * config.num_layers
    assert {name.split(".")[-1] for name in formats_of(config, INT8, embeddings=True)} == {*matrices, *EMBEDDINGS}
    assert formats_of(config, None, embeddings=True) == {}


@pytest.mark.parametrize("quantization", [None, INT8, int4(64), int4(None)])
@pytest.mark.parametrize("embeddings", [False, True])
def test_abstract_weights_are_the_shapes_of_real_ones(quantization, embeddings):
    config = replace(CONFIG, qkv_bias=True, qk_norm=True)
    formats = formats_of(config, quantization, embeddings=embeddings)
    abstract = abstract_weights(config, np.dtype(ml_dtypes.bfloat16), formats)
    drawn_weights = dict(random_weights(config, ml_dtypes.bfloat16, 0, formats))
    floats = random_weights(config, ml_dtypes.bfloat16, 0)
    for real in (drawn_weights, {name: on_device(name, array, formats.get(name)) for name, array in floats}):
        assert list(real) == list(abstract)
        assert jax.tree.map(lambda x: (x.shape, x.dtype), real) == jax.tree.map(lambda x: (x.shape, x.dtype), abstract)
        assert num_bytes(real) == num_bytes(abstract)


def test_a_7b_model_takes_half_and_a_quarter_of_its_bytes():
    model = PRESETS["mistral-7b-v0.1"]
    sizes = {
        name: num_bytes(abstract_weights(model, np.dtype(ml_dtypes.bfloat16), formats_of(model, quantization)))
        - 2 * 2 * 32000 * 4096  # embedding and head stay bfloat16
        for name, quantization in {"bfloat16": None, "int8": INT8, "int4": int4(64)}.items()
    }
    assert sizes["int8"] / sizes["bfloat16"] < 0.505
    assert sizes["int4"] / sizes["bfloat16"] < 0.285


# What a user asks for


@pytest.mark.parametrize(
    ("name", "group_size", "expected"),
    [
        (None, None, None),
        ("int8", None, INT8),
        ("int4", None, int4(64)),
        ("int4", 32, int4(32)),
        ("int4", 0, int4(None)),
    ],
)
def test_a_quantization_by_name(name, group_size, expected):
    assert Quantization.named(name, group_size) == expected


@pytest.mark.parametrize(
    ("name", "group_size", "message"),
    [
        ("int3", None, "quantization is 'int3'; it must be 'auto', 'stored', 'none', 'int8' or 'int4'"),
        ("", None, "quantization is ''"),
        (8, None, "quantization is 8"),
        ("int8", 64, "group_size is 64, and only quantization 'int4' has groups"),
        (None, 64, "group_size is 64"),
        ("int4", 48, "group_size is 48; it must be 32, 64, 128, or 0 for the whole row"),
        ("int4", False, "group_size is False"),
        ("int4", "64", "group_size is '64'"),
        ("int4", 64.0, "group_size is 64.0"),
        ("int4", True, "group_size is True"),
        ("int4", -1, "group_size is -1"),
    ],
)
def test_another_one_is_refused(name, group_size, message):
    with pytest.raises(ValueError, match=message):
        Quantization.named(name, group_size)


@pytest.mark.parametrize("fields", [{"bits": 3}, {"bits": True}, {"bits": 8, "group_size": 64}, {"bits": 8.0}])
def test_bits_and_groups_are_checked(fields):
    with pytest.raises(ValueError, match="it must be"):
        Quantization(**fields)
