"""Packed tensors of a file shown as the matrices they stand for; the file's other tensors as they are."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from checkpoints.packed import awq, compressed_tensors, gptq
from checkpoints.packed.config import AWQ, GPTQ, CompressedTensors, Packing
from checkpoints.packed.matrix import PackedMatrix
from checkpoints.packed.parts import FLOATS, Parts
from checkpoints.stored_rows import StoredRows
from checkpoints.tensor_source import TensorInfo, TensorSource

logger = logging.getLogger(__name__)

_FORMATS: Mapping[type[Packing], tuple[tuple[str, ...], Callable[[Parts, Any], PackedMatrix]]] = {
    GPTQ: (gptq.PARTS, gptq.open_matrix),
    AWQ: (awq.PARTS, awq.open_matrix),
    CompressedTensors: (compressed_tensors.PARTS, compressed_tensors.open_matrix),
}


class PackedSource:
    """The tensors of ``source`` with one ``MODULE.weight`` for each module that is packed.

    Opening it reads what decides whether a matrix is kept quantized (see ``PackedMatrix.quantization``), and biases:
    AutoGPTQ saves one of zeros for products that have none, and only such a one is passed over.

    Args:
        source: the file's own tensors.
        packing: how modules are packed.
        biased: names of products (``q_proj``) that have a bias in the model.

    Raises:
        ValueError: tensors of a module are missing, misshapen, or contradict each other or the configuration; the
            message names the module.
    """

    def __init__(self, source: TensorSource, packing: Packing, biased: Collection[str]) -> None:
        self.path: Path = source.path
        self._source = source
        names, open_matrix = _FORMATS[type(packing)]
        modules = dict.fromkeys(name.rpartition(".")[0] for name in source.infos if _last(name) in names)
        self._matrices: dict[str, PackedMatrix] = {}
        hidden = set(_passed_over(source, packing))
        for module in modules:
            parts = Parts(source, module)
            if parts.has("weight") and (parts.has("qweight") or parts.has("weight_packed")):
                raise parts.error("weight is there both packed and by itself; which one counts is unknown")
            self._matrices[f"{module}.weight"] = open_matrix(parts, packing)
            hidden |= {f"{module}.{name}" for name in names}
            if _last(module) not in biased and _is_bias_of_zeros(parts):
                hidden.add(f"{module}.bias")
        infos = {name: info for name, info in source.infos.items() if name not in hidden}
        infos |= {name: matrix.info for name, matrix in self._matrices.items()}
        self.infos: Mapping[str, TensorInfo] = infos

    def read(self, name: str) -> np.ndarray:
        """See ``TensorSource.read``; the values of a packed matrix are float32."""
        return self._matrices[name].floats() if name in self._matrices else self._source.read(name)

    def blocks(self, name: str) -> Iterator[np.ndarray]:
        """See ``TensorSource.blocks``. Of a packed matrix the numbers are held, a byte each."""
        return self._matrices[name].blocks() if name in self._matrices else self._source.blocks(name)

    def read_quantized(self, name: str) -> StoredRows:
        """See ``TensorSource.read_quantized``."""
        return self._matrices[name].rows()


def _is_bias_of_zeros(parts: Parts) -> bool:
    return parts.has("bias") and parts.dtype("bias") in FLOATS and not parts.read("bias").any()


def _passed_over(source: TensorSource, packing: Packing) -> Iterator[str]:
    """Scales of activations and of the KV cache, which stay floats here; the warning says so."""
    if not isinstance(packing, CompressedTensors):
        return
    kinds = (
        (packing.has_activations, compressed_tensors.ACTIVATION_PARTS, "input of its products"),
        (packing.has_kv_cache, compressed_tensors.KV_CACHE_PARTS, "KV cache"),
    )
    for applies, names, what in kinds:
        if applies:
            logger.warning("%s was made for a quantized %s; here only its weights are quantized", source.path, what)
            yield from (name for name in source.infos if _last(name) in names)


def _last(name: str) -> str:
    return name.rpartition(".")[2]
