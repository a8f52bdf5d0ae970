"""Small programs about which it is known beforehand what a compiler must make of them."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as pltriton

TILE = 64


def array(*shape, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(shape, dtype)


def pallas(body, result, *, name, grid=(), in_specs=None, out_specs=None, num_warps=4):
    """A Pallas kernel for the Triton backend; without specs one block sees whole arrays."""
    specs = {} if in_specs is None else {"in_specs": in_specs, "out_specs": out_specs}
    return pl.pallas_call(
        body,
        out_shape=result,
        grid=grid,
        name=name,
        compiler_params=pltriton.CompilerParams(num_warps=num_warps, num_stages=1),
        **specs,
    )


def double(x, name="double"):
    """One block that doubles ``x`` and calls no matrix unit."""

    def body(x_ref, out_ref):
        out_ref[...] = x_ref[...] * 2

    return pallas(body, array(*x.shape, dtype=x.dtype), name=name)(x)


def add(x, y):
    """One block that reads two whole arrays of one shape."""

    def body(x_ref, y_ref, out_ref):
        out_ref[...] = x_ref[...] + y_ref[...]

    return pallas(body, array(*x.shape, dtype=x.dtype), name="add")(x, y)


def matmul(x, y):
    """``x @ y`` by tiles, the whole inner axis in one step, on eight warps."""

    def body(x_ref, y_ref, out_ref):
        out_ref[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32).astype(out_ref.dtype)

    rows, inner = x.shape
    columns = y.shape[1]
    return pallas(
        body,
        array(rows, columns),
        name="matmul",
        grid=(rows // TILE, columns // TILE),
        in_specs=[pl.BlockSpec((TILE, inner), lambda i, j: (i, 0)), pl.BlockSpec((inner, TILE), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((TILE, TILE), lambda i, j: (i, j)),
        num_warps=8,
    )(x, y)


def scale_by_sum(x):
    """``x * sum(x)`` on one warp, which must hold all of float32 ``x`` at once."""

    def body(x_ref, out_ref):
        out_ref[...] = x_ref[...] * jnp.sum(x_ref[...])

    return pallas(body, array(*x.shape, dtype=x.dtype), name="scale_by_sum", num_warps=1)(x)


def doubled(num_times):
    """A function of ``num_times`` kernels, none of which XLA can fuse."""

    def function(x):
        for _ in range(num_times):
            x = double(x)
        return x

    return function
