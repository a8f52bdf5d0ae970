"""The product as XLA writes it: anywhere, and with many rows on a GPU too, where XLA tries its GEMMs out."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pallas_kernels.norm import rms_norm
from pallas_kernels.quantized_matmul.weights import Int4Weight, Int8Weight, Weight, dequantize, pad_inputs


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
) -> Float[Array, "T M"]:
    """See ``api.matmul``, which checks the arguments."""
    if norm is not None:
        x = rms_norm(x, norm, norm_eps)
    y = _product(x, weight, out_dtype)
    if bias is not None:
        y = y + bias.astype(y.dtype)
    if swiglu:
        gate, up = jnp.split(y, 2, axis=1)
        y = jax.nn.silu(gate) * up
    if residual is not None:
        y = residual.astype(y.dtype) + y
    return y.astype(out_dtype)


def _product(x: Float[Array, "T K"], weight: Weight, dtype: jnp.dtype) -> Float[Array, "T N"]:
    """x W^T. The sums come out in ``dtype``, which is asked of the product itself: one that is rounded first makes ties
    of near logits. INT8 is scaled after the sum, so that XLA for a GPU converts it inside its GEMM instead of writing
    the matrix.
    """
    if isinstance(weight, Int8Weight):
        return _dot(pad_inputs(x), weight.values.astype(x.dtype), dtype) * weight.scales
    if isinstance(weight, Int4Weight):
        # A matrix must not become floats before its x is there: XLA would do so with those of all layers at once.
        x, weight = jax.lax.optimization_barrier((x, weight))
    return _dot(x, dequantize(weight, x.dtype), dtype)


def _dot(x: Float[Array, "T K"], matrix: Float[Array, "N K"], dtype: jnp.dtype) -> Float[Array, "T N"]:
    """Of float32 it is exact, where the default of a GPU would round to TF32."""
    precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
    contract = (((1,), (1,)), ((), ()))
    return jax.lax.dot_general(x, matrix, contract, precision=precision, preferred_element_type=dtype)
