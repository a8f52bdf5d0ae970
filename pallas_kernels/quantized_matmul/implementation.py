"""Which implementation of the product runs: the one asked for, or the device's."""

from typing import Literal, cast, get_args

from pallas_kernels.device import Device, current_device
from pallas_kernels.implementation import pick, why_not_this_gpu
from pallas_kernels.quantized_matmul.configs import Problem
from pallas_kernels.quantized_matmul.jax_triton_gpu.launch import why_not as why_not_triton

Implementation = Literal["xla", "pallas", "triton"]


_MOST_TRITON_ROWS = 16
"""Rows of one tile of the Triton kernel. Each further tile takes the matrix apart anew, which costs what it saves."""


def pick_implementation(asked: Implementation | None, problem: Problem | None = None) -> Implementation:
    """The implementation that runs: the one asked for; or on a GPU that it supports a kernel, and ``xla`` elsewhere.

    Where jax_triton is, INT4 with up to 16 rows of bfloat16 goes to the Triton kernel: by the figures of
    ``docs/gpu-static.md`` it has about half the instructions of the Pallas kernel for a weight. Anything else on a GPU
    goes to the Pallas kernel. What None stands for is said once in the log.

    Args:
        asked: an implementation, or None.
        problem: what is to be computed; None: nothing that the Triton kernel would be better at.

    Raises:
        ValueError: there is no such implementation.
        NotImplementedError: the one asked for does not take this device, or is not installed.
    """
    default = "triton" if problem and _is_better_in_triton(problem) else "pallas"
    operation = "matrix products" if default == "pallas" else "matrix products in INT4 of up to 16 rows"
    return cast(Implementation, pick(operation, asked, get_args(Implementation), default, _refusal))


def _is_better_in_triton(problem: Problem) -> bool:
    is_its_own = problem.weight == "int4" and problem.dtype == "bfloat16" and problem.num_rows <= _MOST_TRITON_ROWS
    return is_its_own and _refusal("triton", current_device()) is None


def _refusal(implementation: str, device: Device) -> str | None:
    match implementation:
        case "pallas":
            return why_not_this_gpu(device)
        case "triton":
            return why_not_triton(device) or why_not_this_gpu(device)
        case _:
            return None
