"""What is said of a checkpoint's quantized matrices, and the bytes that they take, by a formula that needs no jax."""

import math

import jax.numpy as jnp
import pytest

from checkpoints import PRESETS
from checkpoints.quantization import abstract_weights
from checkpoints.quantization import num_bytes as bytes_of_arrays
from jaxinfer.config import Quantization
from jaxinfer.quantized_matrices import QuantizedMatrices, in_words, num_bytes, quantized_matrices
from jaxinfer.weights import formats_of, weight_shapes

INT8, INT4, ROWS = Quantization(bits=8), Quantization(bits=4, group_size=32), Quantization(bits=4)


@pytest.mark.parametrize("quantization", [None, INT8, INT4, Quantization(bits=4, group_size=128), ROWS], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bytes_are_those_of_the_arrays(quantization, dtype):
    """SmolLM2's rows of 576 are filled up to 640; stories260K's of 172 to 256."""
    config = PRESETS["smollm2-135m"]
    formats = formats_of(config, quantization, embeddings=True)
    shapes, float_bytes = weight_shapes(config), jnp.dtype(dtype).itemsize
    counted = sum(num_bytes(shape, float_bytes, formats.get(name)) for name, shape in shapes.items())
    assert counted == bytes_of_arrays(abstract_weights(config, jnp.dtype(dtype), formats))


@pytest.mark.parametrize(
    ("num_inputs", "quantization", "expected"),
    [
        (172, INT8, 256 + 4),
        (5, INT4, 64 + 4 * 4),
        (172, INT4, 128 + 4 * 8),
        (172, ROWS, 128 + 4),
        (128, Quantization(bits=4, group_size=64), 64 + 4 * 2),
    ],
)
def test_bytes_of_a_row(num_inputs, quantization, expected):
    assert num_bytes((3, num_inputs), 2, quantization) == 3 * expected
    assert num_bytes((3, num_inputs), 2, None) == math.prod((3, num_inputs, 2))


def test_what_is_rounded_anew_is_told_with_its_new_format():
    found = quantized_matrices({"a": ("Q8_0",), "b": ("I8",)}, {"b": INT8})
    rounded = quantized_matrices({"c": ("Q4_1",), "d": ("Q4_1", "Q6_K")}, {"c": INT8, "d": INT8})
    assert in_words(found, rounded) == (
        "1 matrix stays int8 (I8), 2 are rounded anew to int8 (Q4_1, Q6_K), 1 is dequantized (Q8_0)"
    )
    assert in_words((), quantized_matrices({"a": ("Q8_0",)}, {"a": ROWS})) == (
        "1 matrix is rounded anew to int4 by rows (Q8_0)"
    )


def test_matrices_that_are_alike_are_counted_together():
    dtypes = {
        "embedding": ("Q6_K",),
        "layers.0.qkv": ("Q4_1", "F16"),
        "layers.0.down": ("Q4_1",),
        "layers.1.down": ("Q4_1",),
        "layers.1.qkv": ("Q4_1", "Q6_K"),
        "final_norm": ("F32",),
        "lm_head": ("bfloat16",),
    }
    found = quantized_matrices(dtypes, {"layers.0.down": INT4, "layers.1.down": INT4})
    assert set(found) == {
        QuantizedMatrices(types=("Q6_K",), kept=None, count=1),
        QuantizedMatrices(types=("Q4_1",), kept=None, count=1),
        QuantizedMatrices(types=("Q4_1",), kept=INT4, count=2),
        QuantizedMatrices(types=("Q4_1", "Q6_K"), kept=None, count=1),
    }
    assert in_words(found) == "2 matrices stay int4 in groups of 32 (Q4_1), 3 are dequantized (Q6_K, Q4_1)"


@pytest.mark.parametrize(
    ("dtypes", "kept", "words"),
    [
        ({"a": ("F32",)}, {}, ""),
        ({"a": ("Q4_0",)}, {"a": INT4}, "1 matrix stays int4 in groups of 32 (Q4_0)"),
        ({"a": ("Q8_0",)}, {}, "1 matrix is dequantized (Q8_0)"),
        ({"a": ("I8",), "b": ("I4",)}, {"a": INT8, "b": ROWS}, "1 matrix stays int8 (I8), 1 stays int4 by rows (I4)"),
    ],
)
def test_a_few_words(dtypes, kept, words):
    assert in_words(quantized_matrices(dtypes, kept)) == words
