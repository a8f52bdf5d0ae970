"""From what a user calls a model to an engine that serves it: files, weights on the device, limits that fit the memory.

This is where ``checkpoints``, which knows files, and the engine, which knows arrays, meet.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from checkpoints import PRESETS, locate, open_checkpoint, random_weights
from jaxinfer import kv_cache
from jaxinfer.config import EngineConfig, ModelConfig
from jaxinfer.engine import Engine
from jaxinfer.model import Decoder
from jaxinfer.runner import ModelRunner
from jaxinfer.tokenizers import load_tokenizer
from jaxinfer.tokenizers.protocol import Tokenizer

logger = logging.getLogger(__name__)

LoadFormat = Literal["auto", "random"]

_DTYPES = {"float32": np.dtype(jnp.float32), "bfloat16": np.dtype(jnp.bfloat16)}

_GPU_MEMORY_SHARE = 0.9
"""Share of what XLA may take of the device that weights and cache may fill; the rest is for temporaries."""

_CPU_CACHE_BYTES = 2**30
"""A CPU's cache is bounded by a fixed size: its memory is shared with everything else that the machine does."""


@dataclass(frozen=True)
class LoadedModel:
    """A model before it is on the device: its shape, its tokenizer, and where its weights come from.

    Attributes:
        config: the shape.
        weights: makes an iterator over (name, array) in the dtype it is given.
        tokenizer: None for a model of random weights.
        eos_token_ids: what ends a text.
    """

    config: ModelConfig
    weights: Callable[[np.dtype], Iterator[tuple[str, np.ndarray]]]
    tokenizer: Tokenizer | None
    eos_token_ids: tuple[int, ...]


def open_model(model: str | Path, *, load_format: LoadFormat = "auto", seed: int = 0) -> LoadedModel:
    """Find a model and read everything but its weights.

    Args:
        model: a directory, a GGUF file, the name of a preset, or a Hugging Face id.
        load_format: ``auto`` reads the weights from files; ``random`` draws them, for a preset only.
        seed: of random weights.

    Raises:
        ValueError: there is no such model, or its files are not what they should be.
    """
    if load_format == "random":
        if str(model) not in PRESETS:
            raise ValueError(
                f"random weights need the name of a preset, not {str(model)!r}; there are {sorted(PRESETS)}"
            )
        config = PRESETS[str(model)]
        return LoadedModel(config, lambda dtype: random_weights(config, dtype, seed), None, ())
    if load_format != "auto":
        raise ValueError(f"load_format is {load_format!r}; it must be 'auto' or 'random'")
    path = locate(str(model))
    checkpoint, tokenizer = open_checkpoint(path), load_tokenizer(path)
    eos = tuple(dict.fromkeys((*checkpoint.eos_token_ids, *tokenizer.eos_token_ids)))
    return LoadedModel(checkpoint.config, checkpoint.weights, tokenizer, eos)


def build_engine(
    loaded: LoadedModel,
    *,
    dtype: str = "auto",
    max_model_len: int | None = None,
    num_kv_pages: int | None = None,
    max_num_seqs: int = 32,
    max_chunk_tokens: int = 256,
    page_size: int = 16,
    seed: int = 0,
) -> tuple[Engine, ModelRunner]:
    """Put the weights on the device, size the cache, and join scheduler and runner. Nothing is compiled yet.

    Args:
        loaded: the model.
        dtype: of weights, activations and cache: ``float32``, ``bfloat16``, or ``auto``: float32 on a CPU, where
            bfloat16 products of one row are slow, and bfloat16 elsewhere.
        max_model_len: None: the model's, or what the cache holds if that is less.
        num_kv_pages: None: what the memory allows, at most what ``max_num_seqs`` of the longest requests need.
        max_num_seqs, max_chunk_tokens, page_size, seed: as in ``EngineConfig``.

    Raises:
        ValueError: a value is out of range, or the cache cannot hold what is asked for.
    """
    array_dtype = _resolve_dtype(dtype)
    config = loaded.config
    if max_model_len is not None and not 0 < max_model_len <= config.max_position_embeddings:
        raise ValueError(
            f"max_model_len is {max_model_len}; this model takes 1 to {config.max_position_embeddings} tokens"
        )
    weights = {name: jax.device_put(array) for name, array in loaded.weights(array_dtype)}
    longest = max_model_len or config.max_position_embeddings
    if num_kv_pages is None:
        num_kv_pages = min(-(-longest // page_size) * max_num_seqs, _pages_that_fit(config, page_size, array_dtype))
    if longest > num_kv_pages * page_size and max_model_len is None:
        longest = num_kv_pages * page_size
        logger.warning("max_model_len is %d: the KV cache holds no longer sequence", longest)
    engine_config = EngineConfig(
        max_model_len=longest,
        max_num_seqs=max_num_seqs,
        max_chunk_tokens=max_chunk_tokens,
        page_size=page_size,
        num_kv_pages=num_kv_pages,
        seed=seed,
    )
    runner = ModelRunner(Decoder(config, weights), engine_config, kv_dtype=array_dtype)
    engine = Engine(runner, engine_config, tokenizer=loaded.tokenizer, eos_token_ids=loaded.eos_token_ids)
    return engine, runner


def _resolve_dtype(dtype: str) -> np.dtype:
    if dtype == "auto":
        return _DTYPES["float32" if jax.default_backend() == "cpu" else "bfloat16"]
    if dtype not in _DTYPES:
        raise ValueError(f"dtype is {dtype!r}; it must be 'auto', {', '.join(map(repr, _DTYPES))}")
    return _DTYPES[dtype]


def _pages_that_fit(config: ModelConfig, page_size: int, dtype: np.dtype) -> int:
    """Pages of the cache for which the device has room once the weights are on it."""
    stats = jax.devices()[0].memory_stats()
    if stats is None:  # a CPU does not say
        room = _CPU_CACHE_BYTES
    else:
        room = int(stats["bytes_limit"] * _GPU_MEMORY_SHARE) - stats["bytes_in_use"]
    page_bytes = kv_cache.bytes_per_token(config, dtype) * page_size
    if room < 2 * page_bytes:
        raise ValueError(
            f"the device has room for {max(room, 0)} bytes of KV cache beside the weights; a page takes {page_bytes}"
        )
    return room // page_bytes - 1  # the dummy page
