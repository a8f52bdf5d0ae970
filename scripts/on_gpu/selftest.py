"""Part ``selftest``: the test of the kernels that an engine makes when it starts, and how long it takes."""

import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from jaxinfer.config import EngineConfig, ModelConfig, Quantization
from jaxinfer.kernel_self_test import KernelSelfTestError, check_kernels
from jaxinfer.weights import formats_of
from pallas_kernels.quantized_matmul import Implementation
from scripts.on_gpu.part import Row
from scripts.on_gpu.peaks import peaks_of_this_device
from scripts.on_gpu.preset import preset
from scripts.on_gpu.settings import Settings

_TABLE = "Self-test of an engine (it should take about a second)"
_DTYPE = np.dtype(jnp.bfloat16)
_INT8 = np.dtype(jnp.int8)
_QUANTIZATIONS = {"bfloat16": None, "int4": Quantization(bits=4, group_size=64)}
_FORMATS = (("bfloat16", _DTYPE), ("int4", _DTYPE), ("int4", _INT8))
"""Of the weights, and of the cache."""


def rows(settings: Settings) -> Iterator[Row]:
    """A row for each format of weights and cache."""
    peaks_of_this_device(settings)
    model = preset(settings)
    jax.block_until_ready(jnp.zeros(1) + 1)  # that the device starts is not the test's time
    formats = _FORMATS[-1:] if settings.tiny else _FORMATS
    for i, (name, kv_dtype) in enumerate(formats):
        if settings.seconds_left <= 0:
            yield Row.of_what_was_not_run(_TABLE, len(formats) - i)
            return
        begin, fault = time.perf_counter(), None
        try:
            # On a CPU None would be no kernel at all.
            kernels: Implementation | None = "pallas" if settings.tiny else None
            weights = formats_of(model, _QUANTIZATIONS[name])
            check_kernels(model, _limits(model, settings), _DTYPE, weights, kernels, kv_dtype)
        except KernelSelfTestError as error:
            fault = str(error)
        values = {"weights": name, "cache": kv_dtype.name, "s": time.perf_counter() - begin}
        yield Row(_TABLE, values | {"ok": fault is None, "fault": fault}, is_fault=fault is not None)


def _limits(model: ModelConfig, settings: Settings) -> EngineConfig:
    """Those of an engine whose user asks for nothing; the test does not look at the size of the cache."""
    longest = model.max_position_embeddings
    if settings.tiny:
        return EngineConfig(max_model_len=longest, max_num_seqs=1, max_chunk_tokens=16, num_kv_pages=1)
    return EngineConfig(max_model_len=longest, num_kv_pages=1)
