"""The product in every format, against its definition: the portable version, and the GPU kernel interpreted."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.quantized_matmul import Config, Int4Weight, Int8Weight, matmul
from pallas_kernels.shapes import SHAPES
from tests.pallas_kernels.paged_attention.combinations import covering, name_of
from tests.pallas_kernels.quantized_matmul.cases import (
    BFLOAT16,
    FORMATS,
    FUSIONS,
    IMPLEMENTATIONS,
    TOLERANCES,
    error_of,
    make_case,
    run,
)

FLOATS = (np.float32, BFLOAT16)
FUSION_SETS = ((), ("norm",), ("norm", "bias"), ("residual",), ("norm", "swiglu"), ("bias", "swiglu"), FUSIONS)
AXES: Mapping[str, Sequence[Any]] = {
    "weight_format": tuple(FORMATS),
    "dtype": FLOATS,
    "num_rows": (1, 3, 8, 16, 33, 64),
    "num_inputs": (64, 172, 256, 576, 960, 1536),
    "num_outputs": (40, 128, 150, 194),
    "fusions": FUSION_SETS,
}
CONFIGS: Mapping[str, Sequence[Any]] = {
    "block_rows": (16, 32, 64),
    "block_outputs": (16, 32, 64),
    "block_inputs": (32, 64, 128, 256),
}
implementations = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)


def config_of(combination):
    """INT4 has one width of a round."""
    sizes = {name: combination[name] for name in CONFIGS}
    if combination["weight_format"].startswith("int4"):
        sizes["block_inputs"] = 128
    return Config(**sizes)


def case_of(combination):
    return make_case(**{name: combination[name] for name in AXES})


COMBINATIONS = covering(AXES | CONFIGS, 24, seed=30)


def test_the_combinations_have_every_value_and_every_format_with_a_norm():
    for name, values in AXES.items():
        assert {name_of(each[name]) for each in COMBINATIONS} == set(map(name_of, values))
    assert {each["weight_format"] for each in COMBINATIONS if "norm" in each["fusions"]} == set(FORMATS)


@pytest.mark.parametrize("combination", COMBINATIONS, ids=name_of)
def test_the_kernel_is_right_with_any_tiles(combination):
    case = case_of(combination)
    assert case.error("pallas", config_of(combination)) < TOLERANCES[combination["dtype"]]


@pytest.mark.parametrize("combination", COMBINATIONS[::2], ids=name_of)
def test_the_portable_version_is_right(combination):
    assert case_of(combination).error("xla") < TOLERANCES[combination["dtype"]]


# Real sizes


def projections():
    """(N, K) of every product of every named model, once, smallest first."""
    sizes = {size for shape in SHAPES.values() for size in shape.matrices.values()}
    return sorted(sizes, key=lambda size: size[0] * size[1])


NUM_INPUTS = sorted({num_inputs for _, num_inputs in projections()})
VARIED = {"weight_format": tuple(FORMATS), "dtype": FLOATS, "fusions": FUSION_SETS}


def test_sizes_that_are_no_multiple_of_a_tile_are_there():
    assert {64, 172, 576, 1536, 12288, 28672} <= set(NUM_INPUTS)


@pytest.mark.parametrize(
    ("num_inputs", "varied"), list(zip(NUM_INPUTS, covering(VARIED, len(NUM_INPUTS)), strict=True)), ids=name_of
)
def test_the_inputs_of_real_models(num_inputs, varied):
    case = make_case(3, 70, num_inputs, **varied)
    assert case.error("pallas") < TOLERANCES[varied["dtype"]]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
@pytest.mark.parametrize("weight_format", FORMATS)
@pytest.mark.parametrize("num_rows", AXES["num_rows"])
def test_the_products_of_small_models(num_rows, weight_format, dtype):
    for num_outputs, num_inputs in projections()[:8]:
        case = make_case(num_rows, num_outputs, num_inputs, weight_format=weight_format, dtype=dtype)
        assert case.error("pallas") < TOLERANCES[dtype], (num_outputs, num_inputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "varied"), list(zip(projections(), covering(VARIED, len(projections())), strict=True)), ids=name_of
)
def test_the_products_of_real_models_in_full(size, varied):
    case = make_case(3, *size, **varied)
    assert case.error("pallas") < TOLERANCES[varied["dtype"]]


# Many rows


@implementations
@pytest.mark.parametrize("weight_format", FORMATS)
def test_many_rows(implementation, weight_format):
    fusions = ("norm", "residual")
    case = make_case(80, 70, 320, weight_format=weight_format, dtype=BFLOAT16, fusions=fusions)
    assert case.error(implementation, Config(block_rows=32)) < TOLERANCES[BFLOAT16]


def test_the_library_is_the_portable_version():
    case = make_case(80, 70, 320, weight_format="int8", dtype=BFLOAT16, fusions=("norm", "swiglu"))
    by_library = run(case, "pallas", Config(block_rows=64, method="library"))
    np.testing.assert_array_equal(by_library, run(case, "xla"))


# What else there is


@implementations
@pytest.mark.parametrize("weight_format", ["float", "int8", "int4, groups of 64"])
def test_the_result_may_be_wider_than_x(implementation, weight_format):
    case = make_case(3, 40, 576, weight_format=weight_format, dtype=BFLOAT16)
    out = run(case, implementation, out_dtype="float32")
    assert out.dtype == np.float32
    # Nearer to the definition than what was rounded to bfloat16 on its way could be.
    # The portable version rounds the matrix that INT4 stands for.
    most = 5e-3 if (implementation, weight_format) == ("xla", "int4, groups of 64") else 2e-5
    assert error_of(out, case.expected()) < most


@pytest.mark.parametrize("weight_dtype", FLOATS, ids=name_of)
@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_a_float_matrix_may_have_another_type_than_x(dtype, weight_dtype):
    case = make_case(3, 40, 192, dtype=dtype)
    case = case.with_matrix(case.weight.astype(weight_dtype))
    assert case.error("pallas") < TOLERANCES[dtype]


def test_pieces_of_int4_are_of_one_width():
    case = make_case(3, 40, 256, weight_format="int4, groups of 64")
    with pytest.raises(NotImplementedError, match="block_inputs is 64; INT4 is cut into pieces of 128"):
        run(case, "pallas", Config(block_rows=16, block_inputs=64))


def spec(shape, dtype):
    return jax.ShapeDtypeStruct(shape, dtype)


def test_an_int8_matrix_whose_places_do_not_fit_is_refused():
    def product(num_outputs):
        weight = Int8Weight(
            values=spec((num_outputs, 4096), jnp.int8), scales=spec((num_outputs,), jnp.float32), num_inputs=4096
        )
        return jax.eval_shape(
            lambda x, weight: matmul(x, weight, implementation="pallas"), spec((1, 4096), jnp.bfloat16), weight
        )

    for num_outputs in (2**19 - 1, 2**20 + 1):
        assert product(num_outputs).shape == (1, num_outputs)
    for num_outputs in (2**19, 2**20):
        with pytest.raises(NotImplementedError, match=f"an int8 matrix of {num_outputs * 4096} bytes; the GPU kernel"):
            product(num_outputs)


def test_int4_of_the_same_size_is_taken():
    num_outputs = 2**19
    groups = spec((num_outputs, 128), jnp.float16)
    weight = Int4Weight(values=spec((num_outputs, 4096), jnp.uint8), scales=groups, offsets=groups, num_inputs=8192)
    out = jax.eval_shape(
        lambda x, weight: matmul(x, weight, implementation="pallas"), spec((1, 8192), jnp.bfloat16), weight
    )
    assert out.shape == (1, num_outputs)
