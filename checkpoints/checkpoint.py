"""Opens a model on disk, whichever of the four layouts it has.

Opening reads the configuration and the headers and checks every tensor against the model; the weights themselves are
read as they are asked for.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np

from checkpoints import gguf_config, huggingface_config, mistral_config
from checkpoints.description import Description
from checkpoints.gguf_source import GGUFSource
from checkpoints.loader import WeightLoader
from checkpoints.native.manifest import MANIFEST, WEIGHTS, is_native
from checkpoints.native.manifest_reading import read_manifest
from checkpoints.native.reader import NativeReader
from checkpoints.packed.source import PackedSource
from checkpoints.safetensors_source import SafetensorsSource, expected_files, find_files, has_files
from checkpoints.tables import HUGGINGFACE, MISTRAL, Table
from checkpoints.tensor_source import TensorSource
from jaxinfer.config import ModelConfig
from jaxinfer.weights import Formats

Layout = Literal["native", "huggingface", "mistral", "gguf"]

_HUGGINGFACE_STEM = "model"
_MISTRAL_STEM = "consolidated"


class WeightReader(Protocol):
    """What gives the weights of a checkpoint; see ``Checkpoint``."""

    stored: Formats
    dtypes: Mapping[str, tuple[str, ...]]

    def weights(self, dtype: np.dtype | type, formats: Formats) -> Iterator[tuple[str, Any]]: ...


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model on disk: its shape, the tokens that end a text, and its weights on request.

    Attributes:
        path: the folder or file.
        layout: how the files are arranged.
        config: the shape of the model.
        eos_token_ids: the tokens that end a text; empty where the checkpoint leaves it to the tokenizer.
        eos_spellings: of control tokens that end a text too where the tokenizer has them.
        method: how the weights that are ``stored`` quantized were made of floats, such as ``gptq``; None: the
            checkpoint does not say, as only a native one can.
    """

    path: Path
    layout: Layout
    config: ModelConfig
    eos_token_ids: tuple[int, ...]
    eos_spellings: tuple[str, ...]
    method: str | None
    _reader: WeightReader = field(repr=False)

    @property
    def stored(self) -> Formats:
        """The weights that are quantized in the files as a product reads them, number for number."""
        return self._reader.stored

    @property
    def dtypes(self) -> Mapping[str, tuple[str, ...]]:
        """For each weight the files' own names of the types of its parts, such as ``BF16`` or ``Q4_1``."""
        return self._reader.dtypes

    def weights(self, dtype: np.dtype | type, formats: Formats = MappingProxyType({})) -> Iterator[tuple[str, Any]]:
        """Yields (name, weight) for each of ``jaxinfer.weights.weight_shapes(config)``, in that order.

        Lazy: beside the weight that is filled only one tensor of the files is held.

        Args:
            dtype: of the floats.
            formats: what the weights are wanted in. Those that are ``stored`` so come as they are, as ``StoredRows``
                or, from a native checkpoint, on the device; all others as floats.

        Raises:
            ValueError: ``dtype`` is neither float32 nor bfloat16, or a file cannot be read.
        """
        return self._reader.weights(dtype, formats)


def detect_layout(path: Path) -> Layout:
    """The layout of what lies at ``path``.

    A folder may have both Hugging Face's files and Mistral's, as Mistral's own repositories do: Hugging Face's are
    taken, since they also say which tokens end a text. A native checkpoint may have files of theirs for its tokenizer.

    Raises:
        ValueError: nothing that can be read lies there; the message names what was looked for.
    """
    if path.is_dir():
        _check_permission(path)
    if path.is_file() and path.suffix == ".gguf":
        return "gguf"
    if is_native(path):
        return "native"
    if (path / "config.json").is_file() and has_files(path, _HUGGINGFACE_STEM):
        return "huggingface"
    if (path / "params.json").is_file() and has_files(path, _MISTRAL_STEM):
        return "mistral"
    raise ValueError(
        f"{path}: no model here. Looked for a folder with {MANIFEST}; a folder with config.json and "
        f"{expected_files(_HUGGINGFACE_STEM)}; a folder with params.json and {expected_files(_MISTRAL_STEM)}; "
        "a .gguf file"
    )


def _check_permission(folder: Path) -> None:
    """Fails where the folder's files cannot be listed or looked at: they would all seem absent."""
    try:
        with os.scandir(folder) as files:
            for file in files:
                file.stat(follow_symlinks=False)
                return
    except OSError as error:
        raise ValueError(f"{folder}: the folder cannot be read: {error.strerror}") from error


def weight_files(path: Path) -> list[Path]:
    """The files that hold the weights of the model at ``path``, all of which are there; they are not opened.

    Raises:
        ValueError: no model lies there, or one of its files is absent.
    """
    match detect_layout(path):
        case "gguf":
            return [path]
        case "native":
            return [path / name for name in read_manifest(path).files if name.startswith(f"{WEIGHTS}/")]
        case "huggingface":
            return list(find_files(path, _HUGGINGFACE_STEM))
        case "mistral":
            return list(find_files(path, _MISTRAL_STEM))


def open_checkpoint(path: Path) -> Checkpoint:
    """Opens the model at ``path``: a GGUF file, or a folder in our own layout, Hugging Face's or Mistral's.

    Of several in one folder it is the first that is named here.

    Raises:
        ValueError: the layout or the architecture is unknown, a file is missing, truncated or foreign, the
            configuration is not supported, or the tensors do not fit it. The message names the file, key or tensors.
    """
    layout = detect_layout(path)
    description, reader, method = _read_native(path) if layout == "native" else _read_foreign(path, layout)
    return Checkpoint(
        path=path,
        layout=layout,
        config=description.config,
        eos_token_ids=description.eos_token_ids,
        eos_spellings=description.eos_spellings,
        method=method,
        _reader=reader,
    )


def _read_native(path: Path) -> tuple[Description, WeightReader, str | None]:
    manifest = read_manifest(path)
    return manifest.description, NativeReader(path, manifest), manifest.method


def _read_foreign(path: Path, layout: Layout) -> tuple[Description, WeightReader, None]:
    description, source, table = _READERS[layout](path)
    return description, WeightLoader(table, description.config, source), None


def _read_huggingface(path: Path) -> tuple[Description, TensorSource, Table]:
    description = huggingface_config.read_description(path)
    source: TensorSource = SafetensorsSource(path, find_files(path, _HUGGINGFACE_STEM))
    if description.packing is not None:
        biased = ("q_proj", "k_proj", "v_proj") if description.config.qkv_bias else ()
        source = PackedSource(source, description.packing, biased)
    return description, source, HUGGINGFACE


def _read_mistral(path: Path) -> tuple[Description, TensorSource, Table]:
    source = SafetensorsSource(path, find_files(path, _MISTRAL_STEM))
    return mistral_config.read_description(path, has_output="output.weight" in source.infos), source, MISTRAL


def _read_gguf(path: Path) -> tuple[Description, TensorSource, Table]:
    source = GGUFSource(path)
    architecture = gguf_config.find_architecture(source)
    return gguf_config.read_description(source, architecture), source, architecture.table


_READERS = {"huggingface": _read_huggingface, "mistral": _read_mistral, "gguf": _read_gguf}
