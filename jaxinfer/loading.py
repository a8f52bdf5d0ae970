"""From what a user calls a model to an engine that serves it.

This is where ``checkpoints``, which knows files, and the engine, which knows arrays, meet.
"""

import logging
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from checkpoints import PRESETS, Checkpoint, locate, open_checkpoint
from checkpoints.quantization import abstract_weights, num_bytes, on_device
from checkpoints.random_weights import random_weights
from jaxinfer.config import ModelConfig, Quantization, QuantizationChoice
from jaxinfer.device_memory import cpu_memory
from jaxinfer.engine import Engine
from jaxinfer.kernel_choice import choose_kernels
from jaxinfer.kernel_self_test import check_kernels
from jaxinfer.limits import resolve_limits
from jaxinfer.model import Decoder
from jaxinfer.output_filter import OutputFilterFactory
from jaxinfer.quantized_matrices import fates_in_words
from jaxinfer.runner import ModelRunner
from jaxinfer.tokenizers import load_tokenizer
from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.weights import Formats, formats_of
from pallas_kernels.device import current_device

logger = logging.getLogger(__name__)

LoadFormat = Literal["auto", "random"]

_DTYPES = {"float32": np.dtype(jnp.float32), "bfloat16": np.dtype(jnp.bfloat16)}


@dataclass(frozen=True)
class LoadedModel:
    """A model before it is on the device: its shape, its tokenizer, and where its weights come from.

    Attributes:
        name: which weights these are.
        config: the shape.
        weights: makes an iterator over (name, weight) in the dtype and the formats it is given, on the device.
        tokenizer: None for a model of random weights.
        eos_token_ids: what ends a text: the ids that the checkpoint names, the tokenizer's own EOS, and the control
            tokens that the checkpoint knows by their spelling.
        stored: the weights that the checkpoint holds quantized as a product reads them.
        dtypes: for each weight the checkpoint's own names of the types of its parts.
    """

    name: str
    config: ModelConfig
    weights: Callable[[np.dtype, Formats], Iterator[tuple[str, Any]]]
    tokenizer: Tokenizer | None
    eos_token_ids: tuple[int, ...]
    stored: Formats = field(default_factory=dict)
    dtypes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


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
        name = f"{model}, random weights of seed {seed}"
        return LoadedModel(name, config, lambda dtype, formats: random_weights(config, dtype, seed, formats), None, ())
    if load_format != "auto":
        raise ValueError(f"load_format is {reprlib.repr(load_format)}; it must be 'auto' or 'random'")
    path = locate(str(model))
    checkpoint, tokenizer = open_checkpoint(path), load_tokenizer(path)
    return LoadedModel(
        name=str(checkpoint.path),
        config=checkpoint.config,
        weights=partial(_read_weights, checkpoint),
        tokenizer=tokenizer,
        eos_token_ids=_eos_token_ids(checkpoint, tokenizer),
        stored=checkpoint.stored,
        dtypes=checkpoint.dtypes,
    )


def _read_weights(checkpoint: Checkpoint, dtype: np.dtype, formats: Formats) -> Iterator[tuple[str, Any]]:
    """Each weight of a file, put on the device, quantized there and dropped here before the next one is read."""
    for name, weight in checkpoint.weights(dtype, formats):
        placed = on_device(name, weight, formats.get(name))
        del weight
        yield name, placed


def _eos_token_ids(checkpoint: Checkpoint, tokenizer: Tokenizer) -> tuple[int, ...]:
    """All, without repeats: a chat model's turn may end at its tokenizer's EOS while the checkpoint names another."""
    spelled = [tokenizer.token_id(spelling) for spelling in checkpoint.eos_spellings]
    found = (*checkpoint.eos_token_ids, tokenizer.eos_token_id)
    control = [token for token in spelled if token is not None and not tokenizer.decode([token])]
    return tuple(dict.fromkeys(token for token in (*found, *control) if token is not None))


@dataclass(frozen=True)
class Numbers:
    """In which numbers a model is held.

    Attributes:
        dtype: of activations, and of the weights that are floats.
        kv_dtype: of the cache.
        formats: of the weights that are quantized.
        weight_bytes: what all weights take of the device.
    """

    dtype: np.dtype
    kv_dtype: np.dtype
    formats: Formats
    weight_bytes: int

    @classmethod
    def choose(
        cls,
        loaded: LoadedModel,
        dtype: str,
        quantization: QuantizationChoice,
        *,
        quantize_embeddings: bool = False,
        kv_dtype: str = "auto",
    ) -> "Numbers":
        """Those that ``build_engine`` takes, whose arguments these are."""
        array_dtype = _resolve_dtype(dtype)
        formats = choose_formats(loaded, array_dtype, quantization, quantize_embeddings=quantize_embeddings)
        weight_bytes = num_bytes(abstract_weights(loaded.config, array_dtype, formats))
        return cls(array_dtype, _resolve_kv_dtype(kv_dtype, array_dtype), formats, weight_bytes)


def build_engine(
    loaded: LoadedModel,
    *,
    dtype: str = "auto",
    quantization: QuantizationChoice = "auto",
    quantize_embeddings: bool = False,
    kernels: str = "auto",
    kv_dtype: str = "auto",
    output_filter: OutputFilterFactory | None = None,
    **limits: Any,
) -> tuple[Engine, ModelRunner]:
    """Settle the limits, put the weights on the device, and join scheduler and runner. No program is compiled yet.

    Args:
        loaded: the model.
        dtype: of weights and activations: ``float32``, ``bfloat16``, or ``auto``: float32 on a CPU, where
            bfloat16 products of one row are slow, and bfloat16 elsewhere.
        quantization, quantize_embeddings: as in ``choose_formats``.
        kernels: as in ``choose_kernels``. GPU kernels that are to run on a GPU are tested on it first.
        kv_dtype: of the KV cache: ``int8`` with a scale for each K and V of a token and kv head, or ``auto``: as
            ``dtype``.
        output_filter: as in ``Engine``.
        limits: as in ``resolve_limits``, but for the bytes of the weights.

    Raises:
        ValueError: a value is out of range, or the memory cannot hold what is asked for.
        KernelSelfTestError: a GPU kernel computes wrong values on this device.
    """
    numbers = Numbers.choose(loaded, dtype, quantization, quantize_embeddings=quantize_embeddings, kv_dtype=kv_dtype)
    array_dtype, cache_dtype, formats = numbers.dtype, numbers.kv_dtype, numbers.formats
    implementation = choose_kernels(kernels, loaded.config)
    _tell_what_is_kept(loaded, formats, quantization)
    config = resolve_limits(loaded.config, cache_dtype, weight_bytes=numbers.weight_bytes, **limits)
    if current_device().is_gpu:
        _warn_of_other_gpus()
        if implementation != "xla":
            check_kernels(loaded.config, config, array_dtype, formats, implementation, cache_dtype)
    weights = dict(loaded.weights(array_dtype, formats))
    model = Decoder(loaded.config, weights, kernels=implementation)
    runner = ModelRunner(model, config, kv_dtype=cache_dtype)
    engine = Engine(
        runner,
        config,
        tokenizer=loaded.tokenizer,
        eos_token_ids=loaded.eos_token_ids,
        cache_identity=(loaded.name, array_dtype.name, cache_dtype.name, str(sorted(formats.items(), key=str))),
        output_filter=output_filter,
    )
    return engine, runner


def choose_formats(
    loaded: LoadedModel, dtype: np.dtype, quantization: QuantizationChoice, *, quantize_embeddings: bool = False
) -> Formats:
    """How each weight of a model is held.

    Args:
        loaded: the model.
        dtype: of what is held as floats.
        quantization: of the layers' matrices, to which all are rounded but those that the checkpoint has in this very
            format; ``stored``: what is quantized in the checkpoint stays so where a product reads it as it is; None:
            all are floats; ``auto``: as ``stored``, but floats on a CPU where they take at most half of the memory,
            since products of quantized matrices are slower there.
        quantize_embeddings: whether embedding and output head are rounded too, with a ``Quantization``.

    Raises:
        ValueError: embeddings are to be rounded and no format is given.
    """
    if isinstance(quantization, Quantization):
        return formats_of(loaded.config, quantization, embeddings=quantize_embeddings)
    if quantize_embeddings:
        raise ValueError(
            f"quantize_embeddings goes with quantization 'int8' or 'int4', which is {reprlib.repr(quantization)}"
        )
    if quantization is None or (quantization == "auto" and _suits_floats(loaded.config, dtype)):
        return {}
    return loaded.stored


def _suits_floats(config: ModelConfig, dtype: np.dtype) -> bool:
    return not current_device().is_gpu and num_bytes(abstract_weights(config, dtype, {})) <= cpu_memory() // 2


def _tell_what_is_kept(loaded: LoadedModel, formats: Formats, quantization: QuantizationChoice) -> None:
    """Says what becomes of the matrices that a checkpoint holds quantized; nothing where there are none."""
    fates = fates_in_words(loaded.dtypes, loaded.stored, formats)
    if fates:
        is_for_speed = quantization == "auto" and loaded.stored and not formats
        why = ": on a CPU floats are faster where memory has room; quantization 'stored' keeps what can stay"
        logger.info("weights: %s%s", fates, why if is_for_speed else "")


def _resolve_dtype(dtype: str) -> np.dtype:
    if not isinstance(dtype, str) or dtype not in ("auto", *_DTYPES):
        raise ValueError(f"dtype is {reprlib.repr(dtype)}; it must be 'auto', {' or '.join(map(repr, _DTYPES))}")
    if dtype == "auto":
        return _DTYPES["float32" if jax.default_backend() == "cpu" else "bfloat16"]
    return _DTYPES[dtype]


def _resolve_kv_dtype(kv_dtype: str, array_dtype: np.dtype) -> np.dtype:
    if not isinstance(kv_dtype, str) or kv_dtype not in ("auto", "int8"):
        raise ValueError(f"kv_dtype is {reprlib.repr(kv_dtype)}; it must be 'auto' or 'int8'")
    return array_dtype if kv_dtype == "auto" else np.dtype(np.int8)


def _warn_of_other_gpus() -> None:
    first, *others = jax.devices()
    if others:
        logger.warning(
            "%d GPUs are visible; the engine uses the first, %s (%s)", 1 + len(others), first, first.device_kind
        )
