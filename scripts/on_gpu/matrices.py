"""Random weights of every format, drawn on the device: a 7B model of NumPy's numbers would take minutes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.quantized_matmul import Int4Weight, Int8Weight, Weight, pad_inputs, padded

FORMATS = ("bfloat16", "int8", "int4/64")
"""Those that are timed."""

ALL_FORMATS = (*FORMATS, "int4/32", "int4/128", "int4/row", "float32")
"""A type, and after the slash the inputs of an INT4 group."""

INT8_DEVIATION = np.arange(-127, 128).std()
_INT4_DEVIATION = np.arange(16).std()
"""Of whole numbers of which each is as likely as the others."""


def group_size(weight_format: str, num_inputs: int) -> int:
    """Inputs of an INT4 group; 0 for the other formats."""
    _, _, group = weight_format.partition("/")
    return padded(num_inputs) if group == "row" else int(group or 0)


@partial(jax.jit, static_argnums=(1, 2, 3))
def draw(key: jax.Array, weight_format: str, num_outputs: int, num_inputs: int) -> Weight:
    """A matrix [N, K] whose numbers have the mean 0 and about the variance 1 / K; no two scales are alike.

    Args:
        key: of ``jax.random``.
        weight_format: one of ``ALL_FORMATS``.
        num_outputs, num_inputs: N and K.
    """
    values_key, scale_key, offset_key = jax.random.split(key, 3)
    deviation = num_inputs**-0.5
    if weight_format in ("float32", "bfloat16"):
        return deviation * jax.random.normal(values_key, (num_outputs, num_inputs), jnp.dtype(weight_format))
    if weight_format == "int8":
        values = jax.random.randint(values_key, (num_outputs, num_inputs), -127, 128, jnp.int8)
        scales = deviation / INT8_DEVIATION * jax.random.uniform(scale_key, (num_outputs,), minval=0.5, maxval=1.5)
        return Int8Weight(values=pad_inputs(values), scales=scales, num_inputs=num_inputs)
    packed = padded(num_inputs)
    groups = (num_outputs, packed // group_size(weight_format, num_inputs))
    scales = deviation / _INT4_DEVIATION * jax.random.uniform(scale_key, groups, minval=0.5, maxval=1.5)
    offsets = -scales * (7.5 + jax.random.uniform(offset_key, groups, minval=-1, maxval=1))
    return Int4Weight(
        values=jax.random.bits(values_key, (num_outputs, packed // 2), jnp.uint8),
        scales=scales.astype(jnp.float16),
        offsets=offsets.astype(jnp.float16),
        num_inputs=num_inputs,
    )


def num_bytes(arrays: object) -> int:
    """Of all arrays of a tree.

    The same as that of ``checkpoints.quantization``, which the parts of the kernels do without: that package needs the
    libraries of all formats of checkpoints.
    """
    return sum(array.size * array.dtype.itemsize for array in jax.tree.leaves(arrays))
