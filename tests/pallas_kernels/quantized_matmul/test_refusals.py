"""What the entry to the product refuses, whatever the implementation: by name, with what is allowed."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.quantized_matmul import Config, Int4Weight, Int8Weight, dequantize, matmul
from pallas_kernels.quantized_matmul.checks import check_weight

X = jnp.ones((3, 200))
FLOAT = jnp.ones((6, 200))
INT8 = Int8Weight(values=jnp.ones((6, 256), jnp.int8), scales=jnp.ones(6), num_inputs=200)
GROUPS = jnp.ones((6, 4), jnp.float16)
INT4 = Int4Weight(values=jnp.ones((6, 128), jnp.uint8), scales=GROUPS, offsets=GROUPS, num_inputs=200)
WEIGHTS = {"float": FLOAT, "int8": INT8, "int4": INT4}

call = inspect.unwrap(matmul)
"""Without the check of shapes that tests add, which would be first to refuse them."""

implementations = pytest.mark.parametrize("implementation", ["xla", "pallas"])


@implementations
@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": jnp.ones((3, 199))}, r"x has the shape \[3, 199\]; it must be \[T = 3, K = 200\]"),
        ({"x": jnp.ones(200)}, r"x has the shape \[200\]; it must be \[T K\]"),
        ({"x": jnp.ones((0, 200))}, r"x has the shape \[0, 200\]"),
        ({"x": X.astype(jnp.int32)}, "x is int32; it must be float32 or bfloat16"),
        ({"x": [1.0, 2.0]}, "x is a list; it must be an array"),
        ({"norm": jnp.ones(199)}, r"norm has the shape \[199\]; it must be \[K = 200\]"),
        ({"norm": [1.0] * 200}, "norm is a list; it must be an array"),
        ({"norm_eps": -1e-5}, "norm_eps is -1e-05; it must be a number of Python in"),
        ({"norm_eps": float("nan")}, "norm_eps is nan"),
        ({"norm_eps": jnp.float32(1e-5)}, "norm_eps is Array"),
        ({"bias": jnp.ones(5)}, r"bias has the shape \[5\]; it must be \[N = 6\]"),
        ({"bias": 1.0}, "bias is a float; it must be an array"),
        ({"residual": jnp.ones((3, 5))}, r"residual has the shape \[3, 5\]; it must be \[T = 3, M = 6\]"),
        ({"residual": jnp.ones((3, 6)), "swiglu": True}, r"residual has .*; it must be \[T = 3, M = 3\]"),
        ({"swiglu": "no"}, "swiglu is 'no'; it must be one of False, True"),
        ({"swiglu": 1, "config": Config(block_rows=16)}, "swiglu is 1; it must be one of False, True"),
        ({"out_dtype": "float16"}, "out_dtype is 'float16'; it must be float32 or bfloat16"),
        ({"out_dtype": "nonsense"}, "out_dtype is 'nonsense'"),
        ({"out_dtype": 3}, "out_dtype is 3"),
        ({"config": {"block_rows": 16}}, "config is .*; it must be a Config, or None"),
    ],
)
def test_operands_that_do_not_fit(weight, changed, message, implementation):
    with pytest.raises(ValueError, match=message):
        call(**{"x": X, "weight": weight} | changed, implementation=implementation)


def broken(weight: Int8Weight | Int4Weight, **fields: Any) -> Any:
    """The weight with other fields, which in tests it would refuse itself."""
    other = object.__new__(type(weight))
    other.__dict__.update(weight.__dict__ | fields)
    return other


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (jnp.ones((6, 200), jnp.float16), "weight is float16; it must be float32 or bfloat16"),
        ([[1.0]], "weight is a list; it must be an array, Int8Weight or Int4Weight"),
        (broken(INT8, num_inputs=300), r"values has the shape \[6, 256\]; it must be \[N = 6, columns = 384\]"),
        (broken(INT8, num_inputs=0), "num_inputs is 0; it must be a whole number, at least 1"),
        (broken(INT8, num_inputs=200.0), "num_inputs is 200.0"),
        (broken(INT8, values=INT8.values.astype(jnp.uint8)), "values is uint8; it must be int8"),
        (broken(INT8, scales=jnp.ones(5)), r"scales has the shape \[5\]; it must be \[N = 6\]"),
        (broken(INT8, scales=jnp.ones(6, jnp.float16)), "scales is float16; it must be float32"),
        (broken(INT4, values=jnp.ones((6, 128), jnp.int8)), "values is int8; it must be uint8"),
        (broken(INT4, scales=jnp.ones((6, 4))), "scales is float32; it must be float16"),
        (broken(INT4, offsets=GROUPS[:, :3]), r"offsets has the shape \[6, 3\]; it must be \[N = 6, groups = 4\]"),
        (
            broken(INT4, scales=GROUPS[:, :3], offsets=GROUPS[:, :3]),
            "scales have 3 groups for 256 inputs .*; groups must be of 32, 64, 128, 256 inputs",
        ),
    ],
)
def test_weights_whose_arrays_do_not_fit(weight, message):
    """By whatever runs, since the entry begins with this check."""
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(check_weight)(weight)


@implementations
def test_an_odd_number_of_rows_has_no_gates(implementation):
    with pytest.raises(ValueError, match="weight has 7 rows; with swiglu half of them are gates, so it must be even"):
        call(X, jnp.ones((7, 200)), swiglu=True, implementation=implementation)


@pytest.mark.parametrize("out_dtype", ["bfloat16", jnp.bfloat16, jnp.dtype("bfloat16")])
def test_a_dtype_may_be_named_in_every_way(out_dtype):
    assert matmul(X, FLOAT, out_dtype=out_dtype).dtype == "bfloat16"


@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
def test_the_portable_product_has_a_gradient(weight):
    """That of the sum of all results is for each input the sum of its column of W."""
    gradient = jax.grad(lambda x: matmul(x, weight, implementation="xla").sum())(X)
    columns = np.asarray(dequantize(weight, jnp.dtype(jnp.float32))).sum(axis=0)
    np.testing.assert_allclose(gradient, np.tile(columns, (3, 1)), rtol=1e-6)
