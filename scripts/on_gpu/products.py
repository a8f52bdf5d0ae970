"""The matrix products of a decoder layer by name, each with what stands before and after it in the model."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from pallas_kernels.quantized_matmul import Implementation, pick_implementation
from pallas_kernels.quantized_matmul.configs import Problem
from pallas_kernels.shapes import SHAPES
from scripts.on_gpu.matrices import group_size

_HEAD_OUTPUTS = 32000
"""Vocabulary of the Mistral 7B models; the table of shapes has none, since nothing else in the kernels reads it."""

NORM_EPS = 1e-5


@dataclass(frozen=True, kw_only=True)
class Product:
    """One product of a model.

    Attributes:
        model: name of a shape of ``pallas_kernels.shapes``.
        name: ``qkv``, ``out``, ``gate_up``, ``down`` or ``head``.
        num_outputs, num_inputs: N and K of its matrix.
        norm, bias, residual, swiglu: what ``matmul`` does beside the product.
        out_dtype: of the result; None: that of the activations.
    """

    model: str
    name: str
    num_outputs: int
    num_inputs: int
    norm: bool = False
    bias: bool = False
    residual: bool = False
    swiglu: bool = False
    out_dtype: str | None = None

    @property
    def width(self) -> int:
        """M, of the result."""
        return self.num_outputs // 2 if self.swiglu else self.num_outputs

    def operands(self, key: jax.Array, num_rows: int, dtype: jnp.dtype) -> dict[str, Any]:
        """Random arguments of ``matmul`` but for the weight. The inputs' rows are of different sizes, as a model's."""
        keys = jax.random.split(key, 5)
        sizes = jnp.exp(jax.random.normal(keys[1], (num_rows, 1)))
        drawn = {"x": sizes * jax.random.normal(keys[0], (num_rows, self.num_inputs))}
        if self.norm:
            drawn["norm"] = 1 + 0.25 * jax.random.normal(keys[2], (self.num_inputs,))
        if self.bias:
            drawn["bias"] = jax.random.normal(keys[3], (self.num_outputs,))
        if self.residual:
            drawn["residual"] = jax.random.normal(keys[4], (num_rows, self.width))
        # The barrier: a compiler may let one reader see the numbers before they are rounded.
        arrays = jax.lax.optimization_barrier({name: array.astype(dtype) for name, array in drawn.items()})
        return arrays | self.options

    def problem(self, weight_format: str, num_rows: int, dtype: jnp.dtype) -> Problem:
        """What ``matmul`` looks the tiles up for."""
        return Problem(
            num_rows=num_rows,
            num_outputs=self.num_outputs,
            num_inputs=self.num_inputs,
            weight=weight_format.partition("/")[0],
            group_size=group_size(weight_format, self.num_inputs),
            swiglu=self.swiglu,
            dtype=dtype.name,
        )

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of ``matmul`` that are no arrays and change the result; ``out_dtype`` only rounds it."""
        return {"swiglu": self.swiglu} | ({"norm_eps": NORM_EPS} if self.norm else {})


def products_of(model: str) -> tuple[Product, ...]:
    """The four of a layer, and the head of the 7B models."""

    def product(name: str, **around: bool) -> Product:
        num_outputs, num_inputs = SHAPES[model].matrices[name]
        return Product(model=model, name=name, num_outputs=num_outputs, num_inputs=num_inputs, **around)

    layer = (
        product("qkv", norm=True, bias=model.startswith("qwen2")),
        product("out", residual=True),
        product("gate_up", norm=True, swiglu=True),
        product("down", residual=True),
    )
    if not model.startswith("mistral-7b"):
        return layer
    head = Product(
        model=model,
        name="head",
        num_outputs=_HEAD_OUTPUTS,
        num_inputs=SHAPES[model].hidden_size,
        norm=True,
        out_dtype="float32",
    )
    return (*layer, head)


def kernels_of(weight_format: str) -> tuple[Implementation, ...]:
    """The kernels that take a format here: the Triton one is for INT4, and may not be installed."""
    if not weight_format.startswith("int4"):
        return ("pallas",)
    try:
        return ("pallas", pick_implementation("triton"))
    except NotImplementedError:
        return ("pallas",)
