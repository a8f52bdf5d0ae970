"""Shapes in annotations are checked while the tests run, and nothing else is."""

import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float, TypeCheckError, jaxtyped

from jaxinfer.layers import rms_norm
from jaxinfer.sampling_params import SamplingParams
from tests.shape_checks import check_shapes

type Pair = tuple[Float[Array, "N"], Float[Array, "N"]]


@jaxtyped(typechecker=check_shapes)
def stacked(pair: Pair, scale: float) -> Float[Array, "2 N"]:
    return jnp.stack(pair) * scale


@jaxtyped(typechecker=check_shapes)
def transposed(x: Float[Array, "A B"]) -> Float[Array, "B A"]:
    return x


def test_a_wrong_shape_is_refused_in_the_modules_of_the_project():
    rms_norm(jnp.ones((2, 3)), jnp.ones(3), 1e-5)
    with pytest.raises(TypeCheckError, match="weight"):
        rms_norm(jnp.ones((2, 3)), jnp.ones(4), 1e-5)


def test_a_wrong_kind_of_array_is_refused():
    with pytest.raises(TypeCheckError, match="weight"):
        rms_norm(jnp.ones((2, 3)), jnp.ones(3, jnp.int32), 1e-5)


def test_shapes_inside_other_types_are_checked():
    stacked((jnp.ones(3), jnp.ones(3)), 2.0)
    with pytest.raises(TypeCheckError, match="pair"):
        stacked((jnp.ones(3), jnp.ones(1)), 2.0)


def test_a_wrong_shape_of_the_result_is_refused():
    transposed(jnp.ones((3, 3)))
    with pytest.raises(TypeCheckError, match="return value"):
        transposed(jnp.ones((2, 3)))


def test_a_type_without_a_shape_is_left_to_the_code():
    stacked((jnp.ones(3), jnp.ones(3)), 2)
    assert SamplingParams(temperature=0).greedy
    with pytest.raises(ValueError, match="temperature is 'hot'"):
        SamplingParams(temperature="hot")
