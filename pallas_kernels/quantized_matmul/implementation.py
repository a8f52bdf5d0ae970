"""Which implementation of the product runs: the one asked for, or the device's."""

from typing import Literal, cast, get_args

from pallas_kernels.device import Device, current_device
from pallas_kernels.implementation import pick, why_not_this_gpu
from pallas_kernels.quantized_matmul.configs import Problem
from pallas_kernels.quantized_matmul.jax_triton_gpu.launch import why_not as why_not_triton

Implementation = Literal["xla", "pallas", "triton"]


_MOST_TRITON_ROWS = 8
"""The Triton kernel has tiles of 8 rows, where the least of the Pallas kernel are 16."""


def pick_implementation(asked: Implementation | None, problem: Problem | None = None) -> Implementation:
    """The implementation that runs: the one asked for; or on a GPU that it supports a kernel, and ``xla`` elsewhere.

    Where jax_triton is, INT4 with up to 8 rows of bfloat16 goes to the Triton kernel: by the figures of
    ``docs/gpu-static.md`` it takes 3.6 instructions for a weight of a 7B model there, and the Pallas kernel 4.8 (6.4 on
    an H100). With 16 rows it has more registers than the limit, and gains on an H100 alone. Anything else on a GPU goes
    to the Pallas kernel. What None stands for is said once in the log.

    Args:
        asked: an implementation, or None.
        problem: what is to be computed; None: nothing that the Triton kernel would be better at.

    Raises:
        ValueError: there is no such implementation.
        NotImplementedError: the one asked for does not take this device, or is not installed.
    """
    default = "triton" if problem and _is_better_in_triton(problem) else "pallas"
    operation = "matrix products" if default == "pallas" else "matrix products in INT4 of up to 8 rows"
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
