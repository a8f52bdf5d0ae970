"""GPTQ against the paper's own steps in float64, column by column, and its error against rounding to nearest's."""

import jax.numpy as jnp
import numpy as np
import pytest

from checkpoints.gptq import add_moments, calibrate
from checkpoints.quantization import quantize
from jaxinfer.config import Quantization
from pallas_kernels.quantized_matmul import Int4Weight, dequantize, unpack_nibbles

NUM_OUTPUTS = 40
FLOAT32 = jnp.dtype(jnp.float32)


def int4(group_size):
    return Quantization(bits=4, group_size=group_size)


def drawn(num_inputs, num_tokens=400, num_dead=0):
    """A matrix, and inputs of very different sizes that go together; some are always 0."""
    rng = np.random.default_rng(num_inputs)
    matrix = rng.standard_normal((NUM_OUTPUTS, num_inputs)) + 0.2
    mixing = rng.standard_normal((num_inputs, num_inputs)) * np.exp(rng.normal(0, 1, num_inputs))
    inputs = rng.standard_normal((num_tokens, num_inputs)) @ mixing / np.sqrt(num_inputs)
    inputs[:, rng.permutation(num_inputs)[:num_dead]] = 0
    return matrix.astype(np.float32), inputs.astype(np.float32)


def moments_of(inputs):
    num_inputs = inputs.shape[1]
    moments = jnp.zeros((num_inputs, num_inputs))
    for part in np.array_split(inputs, 3):
        moments = add_moments(moments, jnp.asarray(part))
    return moments


def errors(weight: Int4Weight, matrix: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Of each output the sum over all inputs of its squared error, in float64."""
    error = np.asarray(dequantize(weight, FLOAT32)).astype(float) - matrix
    return np.einsum("nk,kl,nl->n", error, np.asarray(moments).astype(float), error)


def numbers(weight: Int4Weight) -> np.ndarray:
    return np.asarray(unpack_nibbles(weight.values))[:, : weight.num_inputs]


def by_the_paper(matrix, moments, scales, offsets, group_size):
    """Equations (2) and (3): round a column, add its error to those that are left in proportion to its row of the
    inverse, and eliminate it from the inverse. The damping is a hundredth of the mean moment.
    """
    w, h = matrix.astype(float), np.asarray(moments).astype(float)
    inverse = np.linalg.inv(h + np.eye(len(h)) * 0.01 * np.diag(h).mean())
    q = np.zeros(w.shape, int)
    for k in np.argsort(-np.diag(h), kind="stable"):
        scale, offset = scales[:, k // group_size].astype(float), offsets[:, k // group_size].astype(float)
        q[:, k] = np.clip(np.round((w[:, k] - offset) / np.where(scale == 0, 1, scale)), 0, 15)
        error = (w[:, k] - (q[:, k] * scale + offset)) / inverse[k, k]
        w = w - np.outer(error, inverse[k])
        inverse = inverse - np.outer(inverse[:, k], inverse[k]) / inverse[k, k]
    return q


@pytest.mark.parametrize(
    ("num_inputs", "group_size", "num_dead"),
    [(200, 32, 0), (200, 64, 5), (200, 128, 0), (200, None, 17), (33, 32, 0)],
)
def test_numbers_are_those_of_the_paper(num_inputs, group_size, num_dead):
    """With rows shorter than whole groups, longer than a block of columns, and inputs that are always 0."""
    matrix, inputs = drawn(num_inputs, num_dead=num_dead)
    moments = moments_of(inputs)
    np.testing.assert_allclose(moments, inputs.T @ inputs, rtol=1e-4, atol=1e-4 * np.abs(moments).max())
    weight = calibrate("w", matrix, moments, int4(group_size))
    assert weight.shape == matrix.shape
    assert weight.scales.shape == quantize(jnp.asarray(matrix), int4(group_size)).scales.shape
    expected = by_the_paper(matrix, moments, np.asarray(weight.scales), np.asarray(weight.offsets), weight.group_size)
    # A tie that float32 decides otherwise changes what follows in its row.
    assert (numbers(weight) == expected).mean() > 0.99


@pytest.mark.parametrize("group_size", [32, 64, 128, None])
def test_no_output_is_worse_than_by_rounding_to_nearest_and_all_together_are_much_better(group_size):
    matrix, inputs = drawn(200)
    moments = moments_of(inputs)
    nearest = errors(quantize(jnp.asarray(matrix), int4(group_size)), matrix, moments)
    found = errors(calibrate("w", matrix, moments, int4(group_size)), matrix, moments)
    assert (found <= nearest * (1 + 1e-4)).all()
    assert found.sum() < 0.7 * nearest.sum()


@pytest.mark.parametrize(("num_inputs", "num_tokens"), [(200, 1), (200, 50), (5, 4)])
def test_fewer_tokens_than_inputs_make_no_output_worse(num_inputs, num_tokens):
    """Moments of a low rank, where hardly any direction counts. Of five inputs, which can make up for little, some rows
    are better rounded to nearest.
    """
    matrix, inputs = drawn(num_inputs, num_tokens)
    moments = moments_of(inputs)
    nearest = errors(quantize(jnp.asarray(matrix), int4(64)), matrix, moments)
    found = errors(calibrate("w", matrix, moments, int4(64)), matrix, moments)
    assert (found <= nearest * (1 + 1e-3) + 1e-6 * nearest.max()).all()


def test_inputs_that_do_not_go_together_get_the_best_of_the_ranges():
    """With diagonal moments nothing makes up for anything: what is gained over rounding to nearest is the range's."""
    matrix, _ = drawn(200)
    moments = jnp.diag(jnp.asarray(np.random.default_rng(3).exponential(size=200), jnp.float32))
    weight = calibrate("w", matrix, moments, int4(64))
    scales, offsets = (np.repeat(x, 64, axis=1)[:, :200].astype(float) for x in (weight.scales, weight.offsets))
    steps = (matrix - offsets) / scales
    assert (np.abs(np.clip(steps, 0, 15) - numbers(weight)) < 0.5001).all()
    ratio = errors(weight, matrix, moments) / errors(quantize(jnp.asarray(matrix), int4(64)), matrix, moments)
    assert ratio.mean() < 0.9


def test_without_any_input_the_matrix_is_rounded_to_nearest():
    matrix, _ = drawn(200)
    weight = calibrate("w", matrix, jnp.zeros((200, 200)), int4(32))
    nearest = quantize(jnp.asarray(matrix), int4(32))
    np.testing.assert_array_equal(dequantize(weight, FLOAT32), dequantize(nearest, FLOAT32))


def test_a_group_of_numbers_that_are_all_alike_stays_what_it_is():
    matrix, inputs = drawn(200)
    matrix[:, :32] = 0.25
    weight = calibrate("w", matrix, jnp.diag(jnp.diagonal(moments_of(inputs))), int4(32))
    np.testing.assert_allclose(np.asarray(dequantize(weight, FLOAT32))[:, :32], 0.25)


@pytest.mark.parametrize(
    ("moments", "message"),
    [
        (np.full((64, 64), np.inf), "layers.1.down cannot be calibrated: what goes into it on the .* is not finite"),
        (np.diag([np.nan] + 63 * [1.0]), "layers.1.down cannot be calibrated: what goes into it"),
        (-np.eye(64), "layers.1.down cannot be calibrated: the second moments .* have no Cholesky factor"),
    ],
)
def test_moments_that_are_none_are_refused(moments, message):
    with pytest.raises(ValueError, match=message):
        calibrate("layers.1.down", drawn(64)[0], jnp.asarray(moments, jnp.float32), int4(32))


def test_a_matrix_that_is_not_finite_is_refused():
    matrix, inputs = drawn(64)
    matrix[3, 5] = np.nan
    with pytest.raises(ValueError, match=r"layers\.0\.qkv cannot be quantized: some of its numbers are not finite"):
        calibrate("layers.0.qkv", matrix, moments_of(inputs), int4(32))
