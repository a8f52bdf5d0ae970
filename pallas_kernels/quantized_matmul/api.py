"""The entry to the product: it checks what it is given and hands it to the implementation."""

from functools import partial
from typing import Any

from jaxtyping import Array, Float

from pallas_kernels.arrays import check_factor
from pallas_kernels.quantized_matmul import xla
from pallas_kernels.quantized_matmul.checks import check_config, check_operands, check_out_dtype
from pallas_kernels.quantized_matmul.configs import Config, Problem
from pallas_kernels.quantized_matmul.implementation import Implementation, pick_implementation
from pallas_kernels.quantized_matmul.jax_triton_gpu import launch as triton_launch
from pallas_kernels.quantized_matmul.pallas_gpu import launch
from pallas_kernels.quantized_matmul.weights import Weight


def matmul(
    x: Float[Array, "T K"],
    weight: Weight,
    *,
    norm: Float[Array, "K"] | None = None,
    norm_eps: float = 0.0,
    bias: Float[Array, "N"] | None = None,
    residual: Float[Array, "T M"] | None = None,
    swiglu: bool = False,
    out_dtype: Any = None,
    implementation: Implementation | None = None,
    config: Config | None = None,
) -> Float[Array, "T M"]:
    """x W^T with what stands before and after it in a decoder layer, so that on a GPU it is one kernel.

    y = norm(x) W^T + bias; with ``swiglu`` silu(first half of y) * second half (Shazeer, GLU Variants Improve
    Transformer, 2020); + residual. Each part is there or not, in any combination.

    Args:
        x: activations, float32 or bfloat16.
        weight: ``[N, K]``: float32 or bfloat16, ``Int8Weight`` or ``Int4Weight``.
        norm: weight of the RMS norm of each row of x, x / sqrt(mean(x^2) + norm_eps) * norm (Zhang and Sennrich,
            2019), or None for x as it is.
        norm_eps: epsilon of the norm.
        bias: added to the product.
        residual: added at the end; as wide as the result.
        swiglu: whether the first half of W's rows are gates for its second half: then M = N / 2, and else M = N.
        out_dtype: of the result, float32 or bfloat16; None: that of x.
        implementation: ``xla`` runs anywhere; ``pallas`` is the GPU kernel, interpreted on a CPU (slowly, for tests);
            ``triton`` is another one for INT4 and bfloat16, on a GPU only, from the extra ``jax-triton``; None
            takes the device's, see ``pick_implementation``.
        config: tile sizes of the GPU kernel, which ``xla`` does not use; None takes those of the device. Tiles that ask
            for more shared memory than a GPU has fail when the program is compiled for it.

    Returns:
        [T, M]; the sums are float32 inside. The kernels round once, at the end; ``xla`` also rounds the sums to the
        result's dtype before bias, SwiGLU and residual, and an INT4 matrix to that of x.

    Raises:
        ValueError: arrays whose shapes or dtypes do not fit each other, an odd number of rows of W with ``swiglu``, an
            epsilon that is no number, an unknown dtype or implementation.
        NotImplementedError: ``implementation`` cannot take the shape.
    """
    check_operands(x, weight, norm, bias, residual, swiglu=swiglu)
    check_config(config)
    run: Any = xla.matmul
    # Tiles that are given are the Pallas kernel's, unless another one was asked for.
    problem = None if config else Problem.of(x, weight, swiglu=swiglu)
    match pick_implementation(implementation, problem):
        case "pallas":
            run = partial(launch.matmul, config=config)
        case "triton":
            run = partial(triton_launch.matmul, config=config)
    return run(
        x,
        weight,
        norm=norm,
        norm_eps=check_factor("norm_eps", norm_eps, least=0),
        bias=bias,
        residual=residual,
        swiglu=swiglu,
        out_dtype=x.dtype if out_dtype is None else check_out_dtype(out_dtype),
    )
