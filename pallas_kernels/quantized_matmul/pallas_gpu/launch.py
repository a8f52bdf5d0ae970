"""Launches of the GPU kernel: what it reads, and how many programs run."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float

from pallas_kernels.device import current_device
from pallas_kernels.quantized_matmul import xla
from pallas_kernels.quantized_matmul.configs import Config, Problem, find_config
from pallas_kernels.quantized_matmul.pallas_gpu.multiply import multiply
from pallas_kernels.quantized_matmul.pallas_gpu.operands import Geometry, Inputs, Int4Matrix, Int8Matrix
from pallas_kernels.quantized_matmul.weights import PIECE, Int4Weight, Int8Weight, Weight

_MAX_INT32 = 2**31 - 1
_WIDE_OFFSETS_FROM = 2**32
"""Bytes; jax 0.11.2 and 0.12.0.1, ``_compute_offsets_from_indices`` of the Triton lowering."""


def matmul(
    x: Float[Array, "T K"],
    weight: Weight,
    *,
    norm: Float[Array, "K"] | None,
    norm_eps: float,
    bias: Float[Array, "N"] | None,
    residual: Float[Array, "T M"] | None,
    swiglu: bool,
    out_dtype: jnp.dtype,
    config: Config | None,
) -> Float[Array, "T M"]:
    """See ``api.matmul``, which checks the arguments.

    Raises:
        NotImplementedError: a matrix of a size that it cannot address, or tiles that INT4 cannot be cut into.
    """
    device = current_device()
    if config is None:
        config = find_config(Problem.of(x, weight, swiglu=swiglu), device)
    if config.method == "library":
        fusions: dict[str, Any] = {"norm": norm, "norm_eps": norm_eps, "bias": bias, "residual": residual}
        return xla.matmul(x, weight, **fusions, swiglu=swiglu, out_dtype=out_dtype)
    geometry = _geometry(x, weight, swiglu=swiglu, norm_eps=norm_eps, config=config, compiled=device.is_gpu)
    return pl.pallas_call(
        functools.partial(multiply, geometry=geometry),
        grid=geometry.grid,
        out_shape=jax.ShapeDtypeStruct((geometry.num_rows, geometry.num_outputs), out_dtype),
        interpret=not geometry.compiled,
        compiler_params=plgpu.CompilerParams(num_warps=config.num_warps, num_stages=config.num_stages),
    )(Inputs(x, _matrix(weight), norm, bias, residual))


def _geometry(x: Array, weight: Weight, *, swiglu: bool, norm_eps: float, config: Config, compiled: bool) -> Geometry:
    num_outputs, num_inputs = weight.shape
    stored_inputs, group_size = num_inputs, 0
    match weight:
        case Int8Weight():
            _check_offsets(weight.values)
            stored_inputs = weight.values.shape[1]
        case Int4Weight():
            if config.block_inputs != PIECE:
                raise NotImplementedError(f"block_inputs is {config.block_inputs}; INT4 is cut into pieces of {PIECE}")
            stored_inputs, group_size = 2 * weight.values.shape[1], weight.group_size
    return Geometry(
        num_rows=len(x),
        num_outputs=num_outputs // 2 if swiglu else num_outputs,
        num_inputs=num_inputs,
        stored_inputs=stored_inputs,
        group_size=group_size,
        swiglu=swiglu,
        norm_eps=norm_eps,
        config=config,
        compiled=compiled,
    )


def _check_offsets(values: Array) -> None:
    """Refuse a matrix whose places would not fit the compiler's offsets.

    It counts elements in signed 32 bits, and takes 64 for arrays over 4 GiB: right for every type of two bytes or more.
    """
    if values.size > _MAX_INT32 and values.size <= _WIDE_OFFSETS_FROM:
        raise NotImplementedError(
            f"an int8 matrix of {values.size} bytes; the GPU kernel takes at most {_MAX_INT32}, or more than "
            f"{_WIDE_OFFSETS_FROM}"
        )


def _matrix(weight: Weight) -> Any:
    """The weight as the kernel reads it."""
    match weight:
        case Int8Weight():
            return Int8Matrix(weight.values, weight.scales)
        case Int4Weight():
            return Int4Matrix(weight.values, weight.scales, weight.offsets)
        case _:
            return weight
