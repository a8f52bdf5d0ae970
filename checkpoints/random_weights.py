"""Random weights for a model of any shape, quantized or not.

They stand in for a checkpoint wherever only shapes and speed matter, so they come with the same contract.
"""

import hashlib
from collections.abc import Iterator
from functools import partial
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxinfer.config import ModelConfig, Quantization
from jaxinfer.weights import Formats, weight_shapes
from pallas_kernels.quantized_matmul import Int4Weight, Int8Weight, pad_inputs, padded

_INT8_DEVIATION = np.std(np.maximum(np.arange(-128, 128), -127))
_INT4_DEVIATION = np.std(np.arange(16))
"""Of whole numbers of which each is as likely as the others; -128 counts as -127."""


def random_weights(
    config: ModelConfig, dtype: np.dtype | type, seed: int, formats: Formats = MappingProxyType({})
) -> Iterator[tuple[str, Any]]:
    """Yields (name, weight) for each of ``weight_shapes(config)``, in that order, in ``dtype``, on jax's device.

    Matrices have mean 0 (INT8: -0.5 of a whole number, 0.007 of the deviation) and variance 1 / (size of the input
    axis), so that every product keeps the scale of what goes in and logits stay near 1; norms are ones, biases normal
    with variance 1. Floats are normal; quantized matrices are drawn as whole numbers, all as likely, so that a large
    model costs neither the memory nor the time of its floats. A weight depends on ``seed`` and its own name, shape and
    format only.

    Args:
        config: the shape of the model.
        dtype: any floating type.
        seed: any whole number.
        formats: of the weights that are quantized.
    """
    for name, shape in weight_shapes(config).items():
        key = _key(f"{seed}/{name}")
        if name.endswith("norm"):
            yield name, jnp.ones(shape, dtype)
        elif name in formats:
            yield name, _draw_quantized(key, shape, formats[name])
        else:
            yield name, _draw(key, shape, jnp.dtype(dtype))


def _key(text: str) -> Array:
    words = jnp.asarray(np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint32)[:2])
    return jax.random.wrap_key_data(words, impl="threefry2x32")


@partial(jax.jit, static_argnums=(1, 2))
def _draw(key: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
    deviation = shape[1] ** -0.5 if len(shape) > 1 else 1.0
    return (jax.random.normal(key, shape, jnp.float32) * deviation).astype(dtype)


@partial(jax.jit, static_argnums=(1, 2))
def _draw_quantized(key: Array, shape: tuple[int, int], quantization: Quantization) -> Int8Weight | Int4Weight:
    num_outputs, num_inputs = shape
    num_columns, deviation = padded(num_inputs), num_inputs**-0.5
    if quantization.bits == 8:
        bits = jax.random.bits(key, (num_outputs, num_inputs), jnp.uint8)
        values = jnp.maximum(jax.lax.bitcast_convert_type(bits, jnp.int8), -127)
        scales = jnp.full(num_outputs, deviation / _INT8_DEVIATION, jnp.float32)
        return Int8Weight(values=pad_inputs(values), scales=scales, num_inputs=num_inputs)
    num_groups = num_columns // (quantization.group_size or num_columns)
    scales = jnp.full((num_outputs, num_groups), deviation / _INT4_DEVIATION, jnp.float16)
    return Int4Weight(
        values=jax.random.bits(key, (num_outputs, num_columns // 2), jnp.uint8),
        scales=scales,
        offsets=-7.5 * scales,
        num_inputs=num_inputs,
    )
