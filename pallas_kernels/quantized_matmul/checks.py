"""What the entry to the product refuses: arrays that do not fit together."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from pallas_kernels.arrays import FLOATS, check_array, check_count, check_one_of, check_rank
from pallas_kernels.quantized_matmul.configs import Config
from pallas_kernels.quantized_matmul.weights import GROUP_SIZES, Int4Weight, Int8Weight, Weight, padded


def check_operands(
    x: Array, weight: Weight, norm: Array | None, bias: Array | None, residual: Array | None, *, swiglu: bool
) -> None:
    """Refuse arrays that do not fit together.

    Raises:
        ValueError: some do not.
    """
    check_one_of("swiglu", swiglu, (False, True))
    num_outputs, num_inputs = check_weight(weight)
    check_rank("x", x, "T K")
    check_array("x", x, FLOATS, T=len(x), K=num_inputs)
    if swiglu and num_outputs % 2:
        raise ValueError(f"weight has {num_outputs} rows; with swiglu half of them are gates, so it must be even")
    if norm is not None:
        check_array("norm", norm, FLOATS, K=num_inputs)
    if bias is not None:
        check_array("bias", bias, FLOATS, N=num_outputs)
    if residual is not None:
        check_array("residual", residual, FLOATS, T=len(x), M=num_outputs // 2 if swiglu else num_outputs)


def check_weight(weight: Weight) -> tuple[int, int]:
    """(N, K) of a weight whose arrays fit each other.

    Raises:
        ValueError: they do not, or it is none of the kinds.
    """
    if isinstance(weight, Int8Weight | Int4Weight):
        check_count("num_inputs", weight.num_inputs)
    match weight:
        case Int8Weight():
            _check_packed(weight.values, columns=padded(weight.num_inputs), dtype="int8")
            check_array("scales", weight.scales, ("float32",), N=len(weight.values))
        case Int4Weight():
            _check_packed(weight.values, columns=padded(weight.num_inputs) // 2, dtype="uint8")
            check_rank("scales", weight.scales, "N groups")
            axes = {"N": len(weight.values), "groups": weight.scales.shape[1]}
            check_array("scales", weight.scales, ("float16",), **axes)
            check_array("offsets", weight.offsets, ("float16",), **axes)
            _check_groups(weight)
        case _:
            if not hasattr(weight, "dtype"):
                raise ValueError(f"weight is a {type(weight).__name__}; it must be an array, Int8Weight or Int4Weight")
            check_rank("weight", weight, "N K")
            check_array("weight", weight, FLOATS, N=weight.shape[0], K=weight.shape[1])
    num_outputs, num_inputs = weight.shape
    return num_outputs, num_inputs


def check_config(config: Config | None) -> None:
    """Refuse tile sizes that are none.

    Raises:
        ValueError: it is no ``Config``.
    """
    if config is not None and not isinstance(config, Config):
        raise ValueError(f"config is {config!r}; it must be a Config, or None")


def check_out_dtype(dtype: Any) -> jnp.dtype:
    """``dtype``, if a product can come out in it.

    Raises:
        ValueError: it cannot, or it is no dtype.
    """
    allowed = [jnp.dtype(name) for name in FLOATS]
    for each in allowed:
        if isinstance(dtype, str | type | jnp.dtype) and dtype in (each, each.name, each.type):
            return each
    raise ValueError(f"out_dtype is {dtype!r}; it must be {' or '.join(FLOATS)}")


def _check_packed(values: Array, *, columns: int, dtype: str) -> None:
    check_rank("values", values, "N columns")
    check_array("values", values, (dtype,), N=len(values), columns=columns)


def _check_groups(weight: Int4Weight) -> None:
    num_inputs, num_groups = padded(weight.num_inputs), weight.scales.shape[1]
    allowed = {num_inputs // size: size for size in GROUP_SIZES} | {1: num_inputs}
    if num_groups not in allowed:
        sizes = ", ".join(map(str, (*GROUP_SIZES, num_inputs)))
        raise ValueError(
            f"scales have {num_groups} groups for {num_inputs} inputs (filled up); groups must be of {sizes} inputs"
        )
