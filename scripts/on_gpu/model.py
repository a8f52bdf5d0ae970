"""Parts ``model.*``: a whole 7B model of random weights in one format: its decode step, and requests served with it.

Loading and compiling are most of the time here, so each number of rows has exactly the programs that are timed, and all
are compiled side by side. An engine that a user starts has more of them and the same loop.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from checkpoints.quantization import num_bytes
from checkpoints.random_weights import random_weights
from jaxinfer import kv_cache
from jaxinfer.config import EngineConfig, Quantization
from jaxinfer.kernel_choice import choose_kernels
from jaxinfer.model import Decoder
from jaxinfer.programs import Programs
from jaxinfer.runner import ModelRunner
from jaxinfer.weights import formats_of
from scripts.on_gpu.compiling import reason
from scripts.on_gpu.decode_step import decode_step
from scripts.on_gpu.part import Row
from scripts.on_gpu.peaks import peaks_of_this_device
from scripts.on_gpu.preset import preset
from scripts.on_gpu.serving import LONGEST_OUTPUT, LONGEST_PROMPT, serve
from scripts.on_gpu.settings import Settings

_DTYPE = np.dtype(jnp.bfloat16)
_ROWS = (1, 8, 32, 64, 128)
_SERVED_ROWS = 64
"""Requests that run at a time where requests are served."""


@dataclass(frozen=True)
class Model:
    """A model on the device.

    Attributes:
        decoder: with its weights.
        weight_format: of the layers' matrices, as in ``matrices.ALL_FORMATS``.
        kv_dtype: of the cache.
        step_bytes: bytes of the weights that a decode step reads: of an embedding that is not the head too, it reads
            a row for each token, which does not count.
    """

    decoder: Decoder
    weight_format: str
    kv_dtype: np.dtype
    step_bytes: int

    @classmethod
    def random(cls, weight_format: str, kv_format: str, settings: Settings) -> "Model":
        """The 7B preset with weights of this format and such a cache, or a tiny model."""
        config = preset(settings)
        name, _, group = weight_format.partition("/")
        quantization = None if name == "bfloat16" else Quantization.named(name, int(group) if group else None)
        weights = dict(random_weights(config, _DTYPE, 0, formats_of(config, quantization)))
        read = {name: each for name, each in weights.items() if name != "embedding" or config.tie_embeddings}
        kernels = choose_kernels("auto", config)
        decoder = Decoder(config, weights, kernels=kernels)
        return cls(decoder, weight_format, np.dtype(jnp.dtype(kv_format)), num_bytes(read))

    @property
    def formats(self) -> dict[str, object]:
        """The first columns of its rows."""
        return {"weights": self.weight_format, "cache": self.kv_dtype.name}


def rows(settings: Settings, weight_format: str, kv_format: str) -> Iterator[Row]:
    """A row for the decode step of each number of rows, then one for the requests."""
    peaks = peaks_of_this_device(settings)
    model = Model.random(weight_format, kv_format, settings)
    windows = model.decoder.config.group_windows
    served = 2 if settings.tiny else _SERVED_ROWS
    limits = {num_rows: _limits(num_rows, windows, settings) for num_rows in ((2,) if settings.tiny else _ROWS)}
    chunks = {num_rows: limits[num_rows].max_chunk_tokens if num_rows == served else 0 for num_rows in limits}
    with ThreadPoolExecutor(len(limits)) as pool:
        compiling = {b: pool.submit(_compiled, model, limits[b], chunks[b]) for b in limits}
    for i, (num_rows, config) in enumerate(limits.items()):
        if settings.seconds_left <= 0:
            yield Row.of_what_was_not_run("Decode step", len(limits) - i)
            break
        values = model.formats | {"B": num_rows}
        try:
            runner = _runner(model, config, compiling[num_rows].result())
            token_bytes = kv_cache.bytes_per_token(model.decoder.config, model.kv_dtype)
            measured = decode_step(runner, config, model.step_bytes, token_bytes, peaks, settings)
            del runner  # the next one's cache needs the memory
            yield Row("Decode step", values | measured)
        except Exception as error:
            yield _unfit("Decode step", values, error)
    yield _served_row(model, limits[served], compiling[served], settings)


def _served_row(model: Model, config: EngineConfig, compiling: Future[Programs], settings: Settings) -> Row:
    values = model.formats | {"requests at a time": config.max_num_seqs}
    if settings.lengths is None or not settings.lengths.is_file():
        return Row("Requests served", values | {"note": f"there is no file of lengths at {settings.lengths}"})
    if settings.seconds_left <= 0:
        return Row.of_what_was_not_run("Requests served", 1)
    try:
        runner = _runner(model, config, compiling.result())
        return Row("Requests served", values | serve(runner, config, settings.lengths, settings))
    except Exception as error:
        return _unfit("Requests served", values, error)


def _unfit(table: str, values: dict[str, object], error: Exception) -> Row:
    """A row without numbers: that the memory is too small is no fault."""
    fits_not = "Out of memory" in str(error) or "no room" in str(error)
    return Row(table, values | {"note": "does not fit" if fits_not else reason(error)}, is_fault=not fits_not)


def _limits(num_rows: int, windows: tuple[int | None, ...], settings: Settings) -> EngineConfig:
    """Room for the longest prompt and output of every row."""
    longest = 64 if settings.tiny else LONGEST_PROMPT + LONGEST_OUTPUT
    config = EngineConfig(
        windows=windows,
        prefix_cache=False,  # what is timed is to be computed, for prompts that are alike too
        max_model_len=longest,
        max_num_seqs=num_rows,
        max_chunk_tokens=32 if settings.tiny else 512,
        num_kv_pages=1,
    )
    return replace(config, num_kv_pages=num_rows * config.table_widths[0])


def _compiled(model: Model, config: EngineConfig, chunk: int) -> Programs:
    """The programs of ``max_num_seqs`` rows, without a chunk and with ``chunk`` tokens. No cache is allocated yet."""
    programs = Programs(model.decoder, config, jax.eval_shape(partial(_cache, model, config)))
    programs.rows, programs.chunks = (config.max_num_seqs,), tuple(dict.fromkeys((0, chunk)))
    programs.layouts = {(b, c): programs.layouts[b, c] for b in programs.rows for c in programs.chunks}
    for _ in programs.compile():
        pass
    return programs


def _runner(model: Model, config: EngineConfig, programs: Programs) -> ModelRunner:
    """With a cache of its own. Its memory is free again once the runner is."""
    runner = ModelRunner(model.decoder, config, kv_dtype=model.kv_dtype)
    runner.programs = programs
    return runner


def _cache(model: Model, config: EngineConfig) -> kv_cache.KVCache:
    return kv_cache.allocate(
        model.decoder.config,
        num_pages=config.group_pages,
        page_size=config.page_size,
        max_num_seqs=config.max_num_seqs,
        dtype=model.kv_dtype,
    )
