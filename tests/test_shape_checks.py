"""Shapes in annotations are checked while the tests run, and nothing else is."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float, TypeCheckError, jaxtyped

from jaxinfer.sampling_params import SamplingParams
from pallas_kernels.norm import rms_norm
from tests.shape_checks import check_shapes

type Pair = tuple[Float[Array, "N"], Float[Array, "N"]]


@jaxtyped(typechecker=check_shapes)
def stacked(pair: Pair, scale: float) -> Float[Array, "2 N"]:
    return jnp.stack(pair) * scale


@jaxtyped(typechecker=check_shapes)
def transposed(x: Float[Array, "A B"]) -> Float[Array, "B A"]:
    return x


@jaxtyped(typechecker=check_shapes)
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    rows: Float[Array, "N E"]
    weight: Float[Array, "N"] | None


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


def test_the_arrays_of_a_dataclass_are_checked():
    Batch(jnp.ones((2, 3)), jnp.ones(2))
    Batch(jnp.ones((2, 3)), None)
    with pytest.raises(TypeCheckError, match="weight"):
        Batch(jnp.ones((2, 3)), jnp.ones(3))
    with pytest.raises(TypeCheckError, match="rows"):
        Batch(jnp.ones((2, 3), jnp.int32), None)


def test_a_dataclass_may_hold_what_a_pytree_holds_in_the_place_of_arrays():
    batch = Batch(jnp.ones((2, 3)), jnp.ones(2))
    assert jax.eval_shape(lambda x: x, batch).rows.shape == (2, 3)
    assert jax.tree.map(lambda x: x.ndim, batch) == Batch(2, 1)
