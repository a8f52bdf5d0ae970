"""The call of the Triton kernel through jax_triton.

Neither Triton nor jax_triton is a requirement: they are imported when the kernel is first asked for, and what is
missing is said then.
"""

from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pallas_kernels.device import Device
from pallas_kernels.quantized_matmul.configs import Config
from pallas_kernels.quantized_matmul.weights import PIECE, Int4Weight, Weight
from pallas_kernels.tuned import round_up

_MAX_INT32 = 2**31 - 1
_TOO_NEW_JAX = (0, 12)
"""jax_triton 0.4.1, the newest, fails there in its rule for results that are not used."""
DEFAULT = Config(block_rows=16, block_outputs=32, num_warps=4, num_stages=4)
"""Not timed on any device. More rows than 16 in a tile would need more registers than there are."""
_OPTIONS = {"ptx_version": 84, "enable_fp_fusion": True, "maxnreg": 168}
"""PTX of the oldest version that has what the kernel uses: left alone, Triton writes for its own assembler, which is
newer than the one that comes with CUDA 12. Registers that let three programs of four warps onto a multiprocessor."""


def why_not(device: Device) -> str | None:
    """Why the kernel does not run on the device; None where it does."""
    if not device.is_gpu:
        return "the Triton kernel runs on a GPU only; on a CPU take 'pallas', which is interpreted there, or 'xla'"
    if not find_spec("jax_triton") or jax.__version_info__ >= _TOO_NEW_JAX:
        return "the Triton kernel needs jax_triton, which works with jax below 0.12: pip install 'jaxinfer[jax-triton]'"
    return None


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

    Of ``config`` block_inputs stays 128: each warp takes one piece of that size in a round of the loop.

    Raises:
        NotImplementedError: a matrix that is not INT4 or is too large, activations that are not bfloat16, a config that
            the kernel does not have.
    """
    if not isinstance(weight, Int4Weight):
        raise NotImplementedError(f"weight is a {type(weight).__name__}; the Triton kernel takes Int4Weight only")
    if reason := _why_not_these(x, weight, config):
        raise NotImplementedError(reason)
    import jax_triton

    from pallas_kernels.quantized_matmul.jax_triton_gpu.kernel import int4_matmul

    config = config or DEFAULT
    grid, keywords = cut(len(x), weight, norm_eps=norm_eps, swiglu=swiglu, config=config)
    num_columns = weight.shape[0] // 2 if swiglu else weight.shape[0]
    return jax_triton.triton_call(
        x,
        weight.values,
        weight.scales,
        weight.offsets,
        norm,
        bias,
        residual,
        kernel=int4_matmul,
        out_type=jax.ShapeDtypeStruct((len(x), num_columns), out_dtype),
        grid=grid,
        name="int4_matmul",
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        backend_options=_OPTIONS,
        assembly=True,
        **keywords,
    )


def cut(
    num_rows: int, weight: Int4Weight, *, norm_eps: float, swiglu: bool, config: Config
) -> tuple[tuple[int, int], dict[str, Any]]:
    """The kernel's grid, (tiles of rows, tiles of columns), and its keywords but ``assembly``."""
    num_outputs, num_inputs = weight.shape
    # Eight rows are the fewest of a tensor core's product; more would be computed for nothing.
    block_rows = max(8, min(config.block_rows, round_up(num_rows)))
    keywords = {
        "num_rows": num_rows,
        "num_outputs": num_outputs,
        "num_inputs": num_inputs,
        "group_size": weight.group_size,
        "norm_eps": norm_eps,
        "swiglu": swiglu,
        "block_rows": block_rows,
        "block_outputs": config.block_outputs,
        "block_pieces": config.num_warps,
        "stages": config.num_stages,
    }
    return (-(-num_rows // block_rows), -(-num_outputs // config.block_outputs)), keywords


def _why_not_these(x: Array, weight: Int4Weight, config: Config | None) -> str | None:
    if x.dtype != jnp.bfloat16:
        return f"x is {x.dtype.name}; the Triton kernel takes bfloat16 only"
    sizes = weight.values.size, x.size, len(x) * weight.shape[0]
    if max(sizes) > _MAX_INT32:
        return f"weight, x and product have {sizes} elements; the Triton kernel counts to {_MAX_INT32}"
    if config and (config.method != "fused" or config.block_inputs != PIECE):
        return f"config is {config}; the Triton kernel takes method 'fused' and block_inputs {PIECE}"
    return None
