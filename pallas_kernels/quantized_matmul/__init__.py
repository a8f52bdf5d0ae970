"""Products with float, INT8 and INT4 weight matrices, norm and activation included: one meaning, several ways."""

from pallas_kernels.quantized_matmul.api import matmul
from pallas_kernels.quantized_matmul.configs import Config
from pallas_kernels.quantized_matmul.implementation import Implementation, pick_implementation
from pallas_kernels.quantized_matmul.weights import (
    GROUP_SIZES,
    Int4Weight,
    Int8Weight,
    Weight,
    dequantize,
    pack_nibbles,
    pad_inputs,
    padded,
    take_rows,
    unpack_nibbles,
)

__all__ = [
    "GROUP_SIZES",
    "Config",
    "Implementation",
    "Int4Weight",
    "Int8Weight",
    "Weight",
    "dequantize",
    "matmul",
    "pack_nibbles",
    "pad_inputs",
    "padded",
    "pick_implementation",
    "take_rows",
    "unpack_nibbles",
]
