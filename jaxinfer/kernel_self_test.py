"""A test of the GPU kernels on the device that is to run them, made when an engine starts there.

A compiler or a driver can make a kernel compute wrong values without a word (jax 0.11.0 and 0.11.1 do on some Ampere
cards with CUDA 13: jax issue 40633), and what comes of it reads like the text of a bad model. So each kernel runs
first, and the engine does not start if one is wrong: attention as the smallest and as the largest program will run it,
since their keys are cut into the most and into the fewest shares, and products in every kind of tile of a program.
"""

import logging
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.backend import get_backend

from jaxinfer.config import EngineConfig, ModelConfig
from jaxinfer.kernel_cases import Shape, chunk_error, decode_error
from jaxinfer.matmul_cases import launches, model_products, product_error
from jaxinfer.programs import chunk_sizes, row_sizes
from jaxinfer.weights import Formats
from pallas_kernels.quantized_matmul import Implementation

logger = logging.getLogger(__name__)

_TOLERANCES = {np.dtype(jnp.float32): 2e-5, np.dtype(jnp.bfloat16): 2e-2}
"""The largest error of a head, relative to its norm; a wrong page, key or scale is several times as far off."""


class KernelSelfTestError(RuntimeError):
    """A GPU kernel computes wrong values on this device, or does not run on it."""


def check_kernels(
    model: ModelConfig,
    config: EngineConfig,
    dtype: np.dtype,
    formats: Formats = MappingProxyType({}),
    kernels: Implementation | None = "pallas",
    kv_dtype: np.dtype | None = None,
) -> None:
    """Run every kind of kernel that an engine will run, on small inputs.

    Args:
        model: the model's shape, which the kernels are compiled for.
        config: the engine's limits.
        dtype: of activations, float32 or bfloat16.
        formats: of the weights that are quantized.
        kernels: the implementation of products; None: the best of the GPU kernels for each.
        kv_dtype: of the cache, int8 or as the activations; None: as the activations.

    Raises:
        KernelSelfTestError: one is wrong; the message says which, by how much, where, and what can be done.
    """
    start = time.perf_counter()
    # Nearly all of the time goes into compiling, which runs side by side.
    pool, device = ThreadPoolExecutor(), jax.config.jax_default_device
    cases = [
        *_attention_cases(model, config, dtype, dtype if kv_dtype is None else kv_dtype),
        *_product_cases(model, config, dtype, formats, kernels),
    ]
    running = [(name, pool.submit(_measured_on, device, measure)) for name, measure in cases]
    pool.shutdown(wait=False)  # so that Ctrl-C below does not wait for what is running
    for name, measured in running:
        try:
            error = measured.result()
        except Exception as fault:  # whatever it is, the way on is the same
            reason = str(fault).partition("\n")[0]
            raise KernelSelfTestError(_message(f"{name} does not run", f"{type(fault).__name__}: {reason}")) from fault
        if error > _TOLERANCES[dtype]:
            amount = f"an error of {error:.3g} where {_TOLERANCES[dtype]:g} is allowed"
            raise KernelSelfTestError(_message(f"{name} computes wrong values", amount))
    logger.info("the GPU kernels are right on this device; to find out took %.2f s", time.perf_counter() - start)


def _measured_on(device: jax.Device | None, measure: Callable[[], float]) -> float:
    """The measurement on jax's default device, which is chosen for each thread apart."""
    with jax.default_device(device):
        return measure()


Case = tuple[str, Callable[[], float]]
"""The name of a case, and what measures its error."""


def _attention_cases(model: ModelConfig, config: EngineConfig, dtype: np.dtype, kv_dtype: np.dtype) -> Iterator[Case]:
    rows = row_sizes(config.max_num_seqs)
    chunks = [size for size in chunk_sizes(config.max_chunk_tokens, config.block_q) if size > 0]
    for window in dict.fromkeys(model.windows):
        shape = Shape.of(model, page_size=config.page_size, window=window, dtype=dtype, kv_dtype=kv_dtype)
        where = f"window {window}, {kv_dtype.name} pages"
        for b in dict.fromkeys([rows[0], rows[-1]]):
            yield f"decode attention (B = {b}, {where})", partial(decode_error, shape, b)
        for c in dict.fromkeys([chunks[0], chunks[-1]]):
            yield f"chunk attention (C = {c}, {where})", partial(chunk_error, shape, c, config.block_q)


def _product_cases(
    model: ModelConfig,
    config: EngineConfig,
    dtype: np.dtype,
    formats: Formats,
    kernels: Implementation | None,
) -> Iterator[Case]:
    """With numbers of rows that lead to every kind of launch of the engine's programs."""
    rows, chunks = row_sizes(config.max_num_seqs), chunk_sizes(config.max_chunk_tokens, config.block_q)
    tokens = [b + c for b in rows for c in chunks]
    for each in model_products(model, formats):
        # Logits are made of one token of each row, all else of every token.
        for num_rows in launches(each, rows if each.name == "head" else tokens, dtype, kernels):
            name = f"the product {each.name} (T = {num_rows})"
            yield name, partial(product_error, each, num_rows, dtype, kernels)


def _message(what: str, how: str) -> str:
    cuda = _cuda_version(get_backend().platform_version)
    return (
        f"the GPU kernel for {what} on {jax.devices()[0].device_kind} with jax {jax.__version__} and {cuda}: {how}. "
        "--kernels xla (in Python: kernels='xla') does without the GPU kernels; another version of jax may be right"
    )


def _cuda_version(platform_version: str) -> str:
    """``CUDA 13.0`` of ``PJRT C API\\ncuda 13000``; of another backend what it says of itself."""
    number = re.search(r"cuda (\d+)", platform_version)
    if number is None:
        return " ".join(platform_version.split())
    major, minor = divmod(int(number[1]), 1000)
    return f"CUDA {major}.{minor // 10}"
