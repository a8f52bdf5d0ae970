"""Writes known quantized matrices as GPTQ, AWQ and compressed-tensors have them, bit by bit after their specifications.

Nothing here uses the readers: each number is put into its word by the place that the format gives it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxinfer.config import ModelConfig
from jaxinfer.weights import weight_shapes
from tests.checkpoints.writers import HF_CONFIG, Tensors, hf_tensors

# No width is a multiple of 128, and rows of 160 inputs end in a short group of 64 and of 128.
CONFIG = ModelConfig(
    vocab_size=64,
    hidden_size=160,
    intermediate_size=224,
    num_layers=1,
    num_heads=4,
    num_kv_heads=2,
    head_dim=24,
    max_position_embeddings=128,
    rope_theta=5000.0,
    norm_eps=1e-5,
    tie_embeddings=False,
    windows=(None,),
)

WRITTEN_CONFIG = HF_CONFIG | {
    "vocab_size": 64,
    "hidden_size": 160,
    "intermediate_size": 224,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
}


@dataclass(frozen=True)
class Known:
    """A matrix [N, K] as numbers [N, K], zero points [N, G], scales [N, G] and the group [K] of each input."""

    numbers: np.ndarray
    zeros: np.ndarray
    scales: np.ndarray
    group_of_input: np.ndarray
    bits: int = 4

    def floats(self) -> np.ndarray:
        """What is meant, float64."""
        values = np.empty(self.numbers.shape)
        for k, group in enumerate(self.group_of_input):
            values[:, k] = (self.numbers[:, k] - self.zeros[:, group]) * self.scales[:, group].astype(np.float64)
        return values


def known_matrix(
    shape: tuple[int, int],
    group_size: int | None,
    *,
    bits: int = 4,
    symmetric: bool = False,
    dtype: Any = np.float16,
    digits: int = 64,
    seed: int = 0,
) -> Known:
    """Random numbers whose scales have at most log2(digits) + 1 significant bits, so that float16 holds their products
    with zero points where that leaves 4 bits."""
    rng = np.random.default_rng([seed, *shape])
    num_outputs, num_inputs = shape
    size = group_size or num_inputs
    num_groups = -(-num_inputs // size)
    middle = 2 ** (bits - 1)
    zeros = rng.integers(0, 2 * middle, (num_outputs, num_groups))
    zeros[:2, 0] = 0, 2 * middle - 1
    scales = rng.integers(digits // 2, digits, (num_outputs, num_groups)) / digits / middle / np.sqrt(num_inputs) * 2
    exponent = np.floor(np.log2(scales))
    scales = np.round(scales / 2**exponent * digits) / digits * 2**exponent
    return Known(
        numbers=rng.integers(0, 2 * middle, shape),
        zeros=np.full_like(zeros, middle) if symmetric else zeros,
        scales=scales.astype(dtype),
        group_of_input=np.arange(num_inputs) // size,
        bits=bits,
    )


def pack(numbers: np.ndarray, bits: int, order: tuple[int, ...] | None = None) -> np.ndarray:
    """int32 words along the last axis, the number at place p of a word being number ``order[p]`` of its neighbours."""
    per_word = 32 // bits
    words = np.zeros((len(numbers), -(-numbers.shape[1] // per_word)), np.uint32)
    for column in range(numbers.shape[1]):
        word, neighbour = divmod(column, per_word)
        place = neighbour if order is None else order.index(neighbour)
        words[:, word] |= (numbers[:, column].astype(np.uint32) << np.uint32(bits * place)).astype(np.uint32)
    return words.view(np.int32)


def gptq(known: Known, *, version: str = "gptq", g_idx: bool = True) -> Tensors:
    zeros = pack(known.zeros.T, known.bits)
    if version == "gptq":
        one_each = sum(1 << (known.bits * place) for place in range(32 // known.bits))
        zeros = (zeros.view(np.uint32) - np.uint32(one_each)).view(np.int32)
    tensors = {"qweight": pack(known.numbers, known.bits).T, "qzeros": zeros, "scales": known.scales.T}
    return tensors | ({"g_idx": known.group_of_input.astype(np.int32)} if g_idx else {})


def awq(known: Known) -> Tensors:
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    return {
        "qweight": pack(known.numbers.T, 4, order),
        "qzeros": pack(known.zeros.T, 4, order),
        "scales": known.scales.T,
    }


def compressed(known: Known, *, symmetric: bool = False, g_idx: bool = False) -> Tensors:
    """``pack-quantized``."""
    tensors = {
        "weight_packed": pack(known.numbers, known.bits),
        "weight_scale": known.scales,
        "weight_shape": np.array(known.numbers.shape),
    }
    if not symmetric:
        tensors["weight_zero_point"] = pack(known.zeros.T, known.bits).T
    return tensors | ({"weight_g_idx": known.group_of_input.astype(np.int32)} if g_idx else {})


def compressed_bytes(known: Known, *, symmetric: bool = False) -> Tensors:
    """``int-quantized``."""
    tensors = {"weight": (known.numbers - 128).astype(np.int8), "weight_scale": known.scales}
    return tensors if symmetric else tensors | {"weight_zero_point": (known.zeros - 128).astype(np.int8)}


def gptq_config(group_size: int | None, bits: int = 4, **others: object) -> dict[str, object]:
    return {"quant_method": "gptq", "bits": bits, "group_size": group_size or -1, "sym": False, **others}


def awq_config(group_size: int | None, **others: object) -> dict[str, object]:
    return {
        "quant_method": "awq",
        "bits": 4,
        "group_size": group_size or -1,
        "version": "gemm",
        "zero_point": True,
        **others,
    }


def compressed_weights(group_size: int | None, bits: int = 4, *, symmetric: bool = False) -> dict[str, object]:
    return {
        "num_bits": bits,
        "type": "int",
        "symmetric": symmetric,
        "strategy": "group" if group_size else "channel",
        "group_size": group_size,
    }


def compressed_config(*weights: dict[str, object], **others: object) -> dict[str, object]:
    groups = {
        f"group_{i}": {"targets": ["Linear"], "weights": each, "input_activations": None, "output_activations": None}
        for i, each in enumerate(weights)
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": groups,
        "ignore": ["lm_head"],
        **others,
    }


def layer_matrices(config: ModelConfig = CONFIG) -> Iterator[tuple[str, str, tuple[int, int]]]:
    """(weight, module, shape) of every product of the layers, parts of a weight one after another."""
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    hidden, mlp = config.hidden_size, config.intermediate_size
    for i in range(config.num_layers):
        layer, module = f"layers.{i}", f"model.layers.{i}"
        yield f"{layer}.qkv", f"{module}.self_attn.q_proj", (q, hidden)
        yield f"{layer}.qkv", f"{module}.self_attn.k_proj", (kv, hidden)
        yield f"{layer}.qkv", f"{module}.self_attn.v_proj", (kv, hidden)
        yield f"{layer}.attention_out", f"{module}.self_attn.o_proj", (hidden, q)
        yield f"{layer}.gate_up", f"{module}.mlp.gate_proj", (mlp, hidden)
        yield f"{layer}.gate_up", f"{module}.mlp.up_proj", (mlp, hidden)
        yield f"{layer}.down", f"{module}.mlp.down_proj", (hidden, mlp)


def float_weights(config: ModelConfig = CONFIG) -> Tensors:
    """The weights that are not quantized, and zeros where the others are to be."""
    rng = np.random.default_rng(3)
    weights = {}
    for name, shape in weight_shapes(config).items():
        values = rng.standard_normal(shape)
        if name.endswith("norm"):
            values = 1 + 0.1 * values
        elif name == "lm_head":
            values *= 2 / np.sqrt(shape[1])
        elif name != "embedding":
            values[...] = 0
        weights[name] = values.astype(np.float32)
    return weights


def unpacked_tensors(config: ModelConfig = CONFIG) -> Tensors:
    """The tensors of the file that are not quantized."""
    modules = {module for _, module, _ in layer_matrices(config)}
    tensors = hf_tensors(float_weights(config), config)
    return {name: array for name, array in tensors.items() if name.removesuffix(".weight") not in modules}
