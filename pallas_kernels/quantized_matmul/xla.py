"""The product as XLA writes it: anywhere, and with many rows on a GPU too, where XLA tries its GEMMs out."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pallas_kernels.norm import rms_norm
from pallas_kernels.quantized_matmul.weights import Int8Weight, Weight, dequantize, pad_inputs


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
    """x W^T. The sums of a float matrix come out in ``dtype``, which is asked of the product itself: one that is
    rounded first makes ties of near logits. INT8 is scaled after the sum, in float32, so that XLA for a GPU converts
    it inside its GEMM instead of writing the matrix.
    """
    contract = (((1,), (1,)), ((), ()))
    if isinstance(weight, Int8Weight):
        sums = jax.lax.dot_general(
            pad_inputs(x), weight.values.astype(x.dtype), contract, preferred_element_type=jnp.float32
        )
        return sums * weight.scales
    return jax.lax.dot_general(x, dequantize(weight, x.dtype), contract, preferred_element_type=dtype)
