"""Small cases of the products of a model, and how far a GPU kernel is from the definition, in NumPy and float64.

A case has all the inputs of the model's product and a few of its outputs, and the tiles that the whole product would
have: the kernel is the same, and the answer is soon computed on the host.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, UInt8

from jaxinfer.config import ModelConfig, Quantization
from jaxinfer.kernel_cases import relative_error
from jaxinfer.weights import Formats
from pallas_kernels.device import current_device
from pallas_kernels.quantized_matmul import (
    Config,
    Implementation,
    Int4Weight,
    Int8Weight,
    Weight,
    matmul,
    padded,
    pick_implementation,
)
from pallas_kernels.quantized_matmul.configs import Problem, find_config
from pallas_kernels.tuned import round_up

_NORM_EPS = 1e-5
_WIDEST_TILE = 128
"""Outputs of a tile of a kernel that chooses its own."""

_GATE_LIMIT = 30
"""Beyond it silu(x) is x or 0 to more digits than are compared."""


@dataclass(frozen=True, kw_only=True)
class Product:
    """A product of a model, with what goes into it beside the matrix.

    Attributes:
        name: for messages.
        num_outputs, num_inputs: N and K.
        norm, bias, residual, swiglu: what there is of it.
        quantization: of the matrix; None: it has the activations' dtype.
        out_dtype: of the result, or None for that of the activations.
    """

    name: str
    num_outputs: int
    num_inputs: int
    norm: bool = False
    bias: bool = False
    residual: bool = False
    swiglu: bool = False
    quantization: Quantization | None = None
    out_dtype: str | None = None

    def problem(self, num_rows: int, dtype: np.dtype) -> Problem:
        """What the kernel's tiles are chosen for."""
        quantization, group_size = self.quantization, 0
        if quantization is not None and quantization.bits == 4:
            group_size = quantization.group_size or padded(self.num_inputs)
        return Problem(
            num_rows=num_rows,
            num_outputs=self.num_outputs,
            num_inputs=self.num_inputs,
            weight=dtype.name if quantization is None else f"int{quantization.bits}",
            group_size=group_size,
            swiglu=self.swiglu,
            dtype=dtype.name,
        )


def model_products(model: ModelConfig, formats: Formats) -> Iterator[Product]:
    """The products of all layers, those that are alike once, and the one that makes logits."""
    layers = (
        product for i in range(model.num_layers) for product in _layer_products(model, partial(_format, formats, i))
    )
    yield from dict.fromkeys(layers)
    yield Product(
        name="head",
        num_outputs=model.vocab_size,
        num_inputs=model.hidden_size,
        norm=True,
        quantization=formats.get("embedding" if model.tie_embeddings else "lm_head"),
        out_dtype="float32",
    )


def _format(formats: Formats, layer: int, matrix: str) -> Quantization | None:
    return formats.get(f"layers.{layer}.{matrix}")


def _layer_products(model: ModelConfig, format_of: Callable[[str], Quantization | None]) -> Iterator[Product]:
    """The four of a layer."""
    heads = model.num_heads * model.head_dim
    yield Product(
        name="queries, keys and values",
        num_outputs=heads + 2 * model.num_kv_heads * model.head_dim,
        num_inputs=model.hidden_size,
        norm=True,
        bias=model.qkv_bias,
        quantization=format_of("qkv"),
    )
    yield Product(
        name="attention output",
        num_outputs=model.hidden_size,
        num_inputs=heads,
        residual=True,
        quantization=format_of("attention_out"),
    )
    yield Product(
        name="gate and up",
        num_outputs=2 * model.intermediate_size,
        num_inputs=model.hidden_size,
        norm=True,
        swiglu=True,
        quantization=format_of("gate_up"),
    )
    yield Product(
        name="down",
        num_outputs=model.hidden_size,
        num_inputs=model.intermediate_size,
        residual=True,
        quantization=format_of("down"),
    )


def launches(product: Product, sizes: Iterable[int], dtype: np.dtype, kernels: Implementation | None) -> list[int]:
    """Of these numbers of rows the smallest, and for each kind of launch that they lead to the largest.

    Numbers of rows that are the library's are left out: what runs then is no kernel of ours.

    Args:
        product: of the model.
        sizes: numbers of rows.
        dtype: of the activations.
        kernels: as in ``product_error``.
    """
    kinds: dict[object, int] = {}
    smallest = None
    for num_rows in sorted(sizes, reverse=True):
        implementation, config = _launch(product, num_rows, dtype, kernels)
        if config is None or config.method == "fused":
            kinds.setdefault((implementation, config or round_up(num_rows)), num_rows)
            smallest = num_rows
    return sorted({*kinds.values(), *([] if smallest is None else [smallest])})


def product_error(product: Product, num_rows: int, dtype: np.dtype, kernels: Implementation | None) -> float:
    """How far the product of random activations and a random matrix is from the definition.

    Args:
        product: of the model.
        num_rows: T.
        dtype: of the activations.
        kernels: the implementation; None: what the device takes for the whole product.

    Returns:
        As ``relative_error``, over the rows of the result.
    """
    rng = np.random.default_rng(0)
    implementation, config = _launch(product, num_rows, dtype, kernels)
    cut = _with_few_outputs(product, config)
    x = _rounded(rng.standard_normal((num_rows, cut.num_inputs)), dtype)
    weight, matrix = _weight(rng, cut, dtype)
    num_columns = cut.num_outputs // 2 if cut.swiglu else cut.num_outputs
    parts = {
        "norm": _rounded(1 + 0.3 * rng.standard_normal(cut.num_inputs), dtype) if cut.norm else None,
        "bias": _rounded(rng.standard_normal(cut.num_outputs), dtype) if cut.bias else None,
        "residual": _rounded(rng.standard_normal((num_rows, num_columns)), dtype) if cut.residual else None,
    }
    run = partial(
        matmul,
        norm_eps=_NORM_EPS,
        swiglu=cut.swiglu,
        out_dtype=cut.out_dtype,
        implementation=implementation,
        config=config,
    )
    arrays = {name: None if part is None else part.astype(dtype) for name, part in parts.items()}
    return relative_error(jax.jit(run)(x.astype(dtype), weight, **arrays), _expected(x, matrix, cut, **parts))


def _launch(
    product: Product, num_rows: int, dtype: np.dtype, kernels: Implementation | None
) -> tuple[Implementation, Config | None]:
    """What the whole product runs: the implementation, and the Pallas kernel's tiles; another one has its own."""
    problem = product.problem(num_rows, dtype)
    implementation = pick_implementation(kernels, problem)
    return implementation, find_config(problem, current_device()) if implementation == "pallas" else None


def _with_few_outputs(product: Product, config: Config | None) -> Product:
    """As many as two tiles and a part of a third have, of gates and of what they gate each."""
    halves = 2 if product.swiglu else 1
    few = halves * (2 * (config.block_outputs if config else _WIDEST_TILE) + 8)
    return replace(product, num_outputs=min(product.num_outputs, few))


def _weight(rng: np.random.Generator, product: Product, dtype: np.dtype) -> tuple[Weight, Float[np.ndarray, "N K"]]:
    """A matrix as the kernel takes it, and as it is meant."""
    shape = (product.num_outputs, product.num_inputs)
    if product.quantization is None:
        matrix = _rounded(rng.standard_normal(shape) * product.num_inputs**-0.5, dtype)
        return jax.device_put(matrix.astype(dtype)), matrix
    num_columns = padded(product.num_inputs)
    if product.quantization.bits == 8:
        q = np.zeros((product.num_outputs, num_columns), np.int8)
        q[:, : product.num_inputs] = rng.integers(-127, 128, shape)
        scales = (rng.uniform(0.5, 1.5, product.num_outputs) / 73 * product.num_inputs**-0.5).astype(np.float32)
        weight: Weight = Int8Weight(
            values=jax.device_put(q), scales=jax.device_put(scales), num_inputs=product.num_inputs
        )
        return weight, (q * scales[:, None].astype(np.float64))[:, : product.num_inputs]
    num_groups = num_columns // (product.quantization.group_size or num_columns)
    q = rng.integers(0, 16, (product.num_outputs, num_columns), np.uint8)
    scales, offsets = (
        (x / 4.6 * product.num_inputs**-0.5).astype(np.float16)
        for x in (
            rng.uniform(0.5, 1.5, (product.num_outputs, num_groups)),
            rng.uniform(-10, -5, (product.num_outputs, num_groups)),
        )
    )
    weight = Int4Weight(
        values=jax.device_put(_packed(q)),
        scales=jax.device_put(scales),
        offsets=jax.device_put(offsets),
        num_inputs=product.num_inputs,
    )
    in_groups = q.reshape(*scales.shape, -1) * scales[:, :, None].astype(np.float64) + offsets[:, :, None]
    return weight, in_groups.reshape(q.shape)[:, : product.num_inputs]


def _packed(q: UInt8[np.ndarray, "N padded_K"]) -> UInt8[np.ndarray, "N half_padded_K"]:
    pieces = q.reshape(len(q), -1, 2, 64)
    return (pieces[:, :, 0] | pieces[:, :, 1] << 4).reshape(len(q), -1)


def _expected(
    x: np.ndarray, matrix: np.ndarray, product: Product, *, norm: Any, bias: Any, residual: Any
) -> Float[np.ndarray, "T M"]:
    if norm is not None:
        x = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + _NORM_EPS) * norm
    y = x @ matrix.T
    if bias is not None:
        y = y + bias
    if product.swiglu:
        gate, up = np.split(y, 2, axis=1)
        y = gate / (1 + np.exp(-np.maximum(gate, -_GATE_LIMIT))) * up
    return y if residual is None else y + residual


def _rounded(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The nearest numbers that ``dtype`` has, in float64."""
    return x.astype(dtype).astype(np.float64)
