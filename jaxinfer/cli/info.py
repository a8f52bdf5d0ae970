"""``jaxinfer info``: what a model is and what it takes, from its headers alone."""

import json as json_format
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer

from jaxinfer.cli.exits import shown_warnings, usage_errors
from jaxinfer.config import ModelConfig, RopeScaling
from jaxinfer.quantized_matrices import QuantizedMatrices, in_words, num_bytes, quantized_matrices
from jaxinfer.weights import Formats, weight_shapes

_BYTES_PER_ELEMENT = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """The numbers that decide where a model fits.

    Attributes:
        model: what the user typed.
        layout: how the files are arranged, or ``preset``.
        path: where they lie; None for a preset.
        config: the shape.
        num_parameters: numbers in all weights.
        dtype: of what is held as floats and of the cache, for the bytes.
        quantized: the matrices that the files hold quantized; empty for a preset.
        weight_bytes: bytes of all weights on the device, loaded as they are ``stored``.
        kv_bytes_per_token: bytes of the KV cache for one token in all layers.
    """

    model: str
    layout: str
    path: str | None
    config: ModelConfig
    num_parameters: int
    dtype: str
    quantized: tuple[QuantizedMatrices, ...]
    weight_bytes: int
    kv_bytes_per_token: int


def info(
    model: Annotated[str, typer.Argument(help="A folder, a .gguf file, the name of a preset, or a Hugging Face id.")],
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16: what the bytes are counted for.")] = "bfloat16",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show a model's architecture, parameters and bytes without loading its weights.

    A preset needs no weights for this. A Hugging Face id that is not in the local cache is downloaded first.
    """
    with shown_warnings():
        with usage_errors():
            _check_dtype(dtype)  # first, for a model may have to be downloaded
            found = _find(model, dtype)
        print(json_format.dumps(asdict(found)) if json else _as_table(found))


def describe(
    model: str,
    config: ModelConfig,
    dtype: str,
    *,
    layout: str = "preset",
    path: str | None = None,
    stored: Formats = MappingProxyType({}),
    dtypes: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> ModelInfo:
    """The numbers of a model.

    Args:
        model: its name.
        config: its shape.
        dtype: ``float32`` or ``bfloat16``.
        layout: as in ``ModelInfo``, as ``path`` is.
        stored: as in ``Checkpoint``, as ``dtypes`` is.
    """
    shapes, float_bytes = weight_shapes(config), _BYTES_PER_ELEMENT[dtype]
    return ModelInfo(
        model=model,
        layout=layout,
        path=path,
        config=config,
        num_parameters=sum(map(prod, shapes.values())),
        dtype=dtype,
        quantized=quantized_matrices(dtypes, stored),
        weight_bytes=sum(num_bytes(shape, float_bytes, stored.get(name)) for name, shape in shapes.items()),
        kv_bytes_per_token=config.kv_elements_per_token * float_bytes,
    )


def _check_dtype(dtype: str) -> None:
    if dtype not in _BYTES_PER_ELEMENT:
        raise ValueError(f"dtype is {dtype!r}; it must be {' or '.join(map(repr, _BYTES_PER_ELEMENT))}")


def _find(model: str, dtype: str) -> ModelInfo:
    """The model that the user calls so; a folder or file of a preset's name hides the preset, as when it is loaded."""
    from checkpoints import PRESETS, locate, open_checkpoint  # these import the hub's client, which --help need not

    if model in PRESETS and not Path(model).exists():
        return describe(model, PRESETS[model], dtype)
    checkpoint = open_checkpoint(locate(model))
    return describe(
        model,
        checkpoint.config,
        dtype,
        layout=checkpoint.layout,
        path=str(checkpoint.path),
        stored=checkpoint.stored,
        dtypes=checkpoint.dtypes,
    )


def _as_table(found: ModelInfo) -> str:
    rows: Mapping[str, object] = {
        "model": found.model,
        "layout": found.layout if found.path is None else f"{found.layout}, {found.path}",
        **asdict(found.config),
        "windows": windows_in_words(found.config),
        "rope_scaling": _rope_scaling(found.config.rope_scaling),
        "parameters": f"{found.num_parameters:,}",
        **({"quantized": in_words(found.quantized)} if found.quantized else {}),
        **_weights_row(found),
        f"KV cache, {found.dtype}": f"{found.kv_bytes_per_token:,} bytes per token",
    }
    width = max(map(len, rows))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())


def _weights_row(found: ModelInfo) -> dict[str, str]:
    size = f"{found.weight_bytes:,} bytes ({found.weight_bytes / 2**30:.2f} GiB)"
    if any(each.kept is not None for each in found.quantized):
        return {"weights, as stored": f"{size}, floats in {found.dtype}"}
    return {f"weights, {found.dtype}": size}


def windows_in_words(config: ModelConfig) -> str:
    """The windows of all layers in a few words."""
    counts = Counter(config.windows)
    if len(counts) == 1:
        (window,) = counts
        return "none" if window is None else f"{window} in every layer"
    wide = (f"{window} in {counts[window]}" for window in config.group_windows if window is not None)
    return f"{', '.join(wide)} of {config.num_layers} layers"


def _rope_scaling(scaling: RopeScaling | None) -> str:
    """The range of its divisors, of which there is one for each frequency."""
    if scaling is None:
        return "none"
    least, most = min(scaling.divisors), max(scaling.divisors)
    divided = f"frequencies divided by {least:.4g}" + ("" if least == most else f" to {most:.4g}")
    factor = scaling.attention_factor
    return divided if factor == 1 else f"{divided}, cosine and sine times {factor:.4g}"
