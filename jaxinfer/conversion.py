"""From a model that people have to a native checkpoint: read, rounded to fewer bits, and written weight by weight.

A model needs no more memory than a few of its matrices on the way, or a layer of them where they are calibrated.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32

from checkpoints import Checkpoint, locate, open_checkpoint
from checkpoints.native.writer import write
from checkpoints.quantization import on_device
from jaxinfer.calibration import calibrated
from jaxinfer.config import Quantization
from jaxinfer.quantized_matrices import fates_in_words
from jaxinfer.tokenizers import load_tokenizer
from jaxinfer.value_checks import check_int, shown
from jaxinfer.weights import Formats, formats_of

logger = logging.getLogger(__name__)

Method = Literal["rtn", "gptq"]

_DTYPES = ("float32", "bfloat16")
_MOST_TOKENS_OF_A_WINDOW = 512


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The text that GPTQ weighs its errors by.

    Attributes:
        text: any that the model is meant for; what it is to be measured with should not be in it.
        num_tokens: how many of its tokens, at the most, are read.
    """

    text: str
    num_tokens: int = 16_384

    def windows(self, path: Path, longest: int) -> Int32[np.ndarray, "n length"]:
        """The tokens of the text by the tokenizer of the model at ``path``, cut into windows of equal length.

        Raises:
            ValueError: the text has fewer than two tokens, or the number of tokens is out of range.
        """
        check_int("calibration tokens", self.num_tokens, "a whole number >= 2", 2)
        token_ids = load_tokenizer(path).encode(self.text)[: self.num_tokens] if self.text else []
        length = min(len(token_ids), longest, _MOST_TOKENS_OF_A_WINDOW)
        if length < 2:
            raise ValueError(f"the calibration text is too short: it has {len(token_ids)} tokens, and 2 are needed")
        if len(token_ids) < self.num_tokens:
            logger.warning(
                "the calibration text has %d tokens and not %d: matrices that are fitted to few inputs fit no others",
                len(token_ids),
                self.num_tokens,
            )
        return np.array(token_ids[: len(token_ids) // length * length], np.int32).reshape(-1, length)


def convert(
    source: str | Path,
    destination: str | Path,
    *,
    quantize: str | None = None,
    group_size: int | None = None,
    quantize_embeddings: bool = False,
    method: Method | None = None,
    calibration: Calibration | None = None,
    dtype: str = "bfloat16",
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write a model as a native checkpoint. The destination is there when all of it is, and not before.

    Args:
        source: a model, as ``LLM`` takes it.
        destination: a folder that is not there yet.
        quantize: ``int8`` or ``int4``, for the layers' matrices; None: what the source holds quantized stays so where a
            product reads it as it is, and all else is floats.
        group_size: as in ``LLM``.
        quantize_embeddings: whether embedding and output head are quantized too.
        method: ``rtn``, rounding to nearest, or for ``int4`` ``gptq`` (Frantar et al., 2022); None: ``rtn``. What the
            source holds in the wanted format already stays as it is.
        calibration: what ``gptq`` needs.
        dtype: of what stays floats: ``bfloat16`` or ``float32``.
        overwrite: whether a native checkpoint that lies at the destination is replaced.
        progress: called with (bytes written, bytes in all) of the weights.

    Raises:
        ValueError: a value is out of range, there is no such model, its files are not what they should be, or the
            destination is there or cannot be written.
    """
    wanted = _wanted(quantize, group_size, quantize_embeddings)
    _check_method(method, wanted, calibration)
    if dtype not in _DTYPES:
        raise ValueError(f"dtype is {shown(dtype)}; it must be 'bfloat16' or 'float32'")
    checkpoint = open_checkpoint(locate(source))
    config = checkpoint.config
    formats = checkpoint.stored if wanted is None else formats_of(config, wanted, embeddings=quantize_embeddings)
    windows = None if calibration is None else calibration.windows(checkpoint.path, config.max_position_embeddings)
    fates = fates_in_words(checkpoint.dtypes, checkpoint.stored, formats)
    if fates:
        logger.info("weights: %s", fates)
    write(
        Path(destination),
        _floats_cast(_weights(checkpoint, formats, windows), jnp.dtype(dtype)),
        description=checkpoint,
        source=checkpoint.path,
        source_name=str(source),
        formats=formats,
        dtype=jnp.dtype(dtype),
        method=_methods(checkpoint, formats, method),
        overwrite=overwrite,
        progress=progress,
    )


def _methods(checkpoint: Checkpoint, formats: Formats, method: Method | None) -> str | None:
    """How the quantized weights were made of floats: those that are kept, and those that are made now."""
    is_kept = {checkpoint.stored.get(name) == format for name, format in formats.items()}
    methods = [checkpoint.method] * (True in is_kept) + [method or "rtn"] * (False in is_kept)
    return " and ".join(dict.fromkeys(each for each in methods if each is not None)) or None


def _wanted(quantize: str | None, group_size: int | None, quantize_embeddings: bool) -> Quantization | None:
    if quantize not in (None, "int8", "int4"):
        raise ValueError(f"quantize is {shown(quantize)}; it must be 'int8' or 'int4', or left out")
    wanted = Quantization.named(quantize, group_size)
    assert not isinstance(wanted, str), "none of the names is that of a choice"
    if quantize_embeddings and wanted is None:
        raise ValueError("quantize_embeddings goes with quantize, which is 'int8' or 'int4'")
    return wanted


def _check_method(method: str | None, wanted: Quantization | None, calibration: Calibration | None) -> None:
    if method not in (None, "rtn", "gptq"):
        raise ValueError(f"method is {shown(method)}; it must be 'rtn' or 'gptq'")
    if method == "gptq" and (wanted is None or wanted.bits != 4):
        raise ValueError("method is 'gptq', which goes with quantize 'int4' and nothing else")
    if method is not None and wanted is None:
        raise ValueError(f"method is {method!r}, and nothing is quantized; give quantize, 'int8' or 'int4'")
    if (method == "gptq") != (calibration is not None):
        raise ValueError("method 'gptq' needs a calibration text, and no other method takes one")


def _weights(
    checkpoint: Checkpoint, formats: Formats, windows: Int32[np.ndarray, "n length"] | None
) -> Iterator[tuple[str, Any]]:
    """Each weight in its format. Matrices are rounded from float32, whatever the file has."""
    read = checkpoint.weights(np.float32, formats)
    if windows is not None:
        yield from calibrated(checkpoint.config, read, formats, windows)
        return
    for name, weight in read:
        placed = on_device(name, weight, formats.get(name))
        del weight
        yield name, placed
        del placed  # a matrix in float32 may be half a gigabyte, and the next one is about to be read


def _floats_cast(weights: Iterator[tuple[str, Any]], dtype: jnp.dtype) -> Iterator[tuple[str, Any]]:
    for name, weight in weights:
        is_float = isinstance(weight, Array) and jnp.issubdtype(weight.dtype, jnp.floating)
        cast = jax.block_until_ready(weight.astype(dtype)) if is_float else weight
        del weight
        yield name, cast
        del cast
