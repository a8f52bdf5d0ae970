"""A random small Llama that the library ``compressed-tensors`` packed: half of its products in 4 bits, half in 8.

Its scales are bfloat16, as those of most published files. The logits are those of the written file, unpacked by the
library itself, in float32; transformers 5.24 does not load packed zero points.
"""

from pathlib import Path

import compressed_tensors
import numpy as np
import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import (
    QuantizationArgs,
    QuantizationConfig,
    QuantizationScheme,
    apply_quantization_config,
)
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from reference.fixture import Array, Sources, require, write_reference
from reference.random_weights import fill_with_random_weights

NUM_TOKENS = 24
SEED = 11

_ATTENTION = {"num_bits": 4, "symmetric": False, "strategy": "group", "group_size": 32}
_FEED_FORWARD = {"num_bits": 8, "symmetric": True, "strategy": "channel"}


def make(sources: Sources) -> None:
    """Write the packed checkpoint and the float32 logits of 24 random tokens."""
    folder = sources.fixtures / "tiny_compressed"
    model = LlamaForCausalLM(_config()).eval()
    fill_with_random_weights(model, SEED)
    model.to(torch.bfloat16)
    apply_quantization_config(model, _quantization())
    for _, module in _quantized(model):
        _round_to_nearest(module, module.quantization_scheme.weights)
    schemes = {name: module.quantization_scheme for name, module in _quantized(model)}
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)  # transformers' defaults, which say nothing of it

    token_ids = np.random.default_rng(SEED + 1).integers(3, model.config.vocab_size, NUM_TOKENS)
    logits = _logits(folder, schemes, token_ids)
    require(1 <= logits.std() <= 3, f"logits spread with a std of 1 to 3, here {logits.std():.2f}")
    write_reference(
        folder,
        {
            "token_ids": Array(token_ids.astype(np.int32), "T random tokens"),
            "logits": Array(logits, "[T, V], eager attention in float32 on the dequantized weights"),
        },
        "Random LlamaForCausalLM by compressed-tensors: attention in 4 bits by groups of 32 with zero points, "
        "feed-forward in 8 bits by rows.",
        compressed_tensors=compressed_tensors.__version__,
    )


def _round_to_nearest(module: torch.nn.Module, args: QuantizationArgs) -> None:
    """Set the scales and zero points that span the numbers of each group."""
    weight = module.weight.data.float()
    groups = weight.unflatten(1, (-1, args.group_size or weight.shape[1]))
    scale, zero_point = calculate_qparams(groups.amin(-1), groups.amax(-1), args)
    module.weight_scale.data.copy_(scale)
    if not args.symmetric:
        module.weight_zero_point.data.copy_(zero_point)


@torch.inference_mode()
def _logits(folder: Path, schemes: dict[str, QuantizationScheme], token_ids: np.ndarray) -> np.ndarray:
    tensors = {
        name: tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    for module, scheme in schemes.items():
        prefix = f"{module}."
        packed = {name.removeprefix(prefix): tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}
        tensors[f"{prefix}weight"] = PackedQuantizationCompressor.decompress(packed, scheme)["weight"]
    model = LlamaForCausalLM(_config()).eval()
    model.load_state_dict(tensors)
    return model(torch.from_numpy(token_ids)[None]).logits[0].numpy()


def _quantized(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    return [(name, module) for name, module in model.named_modules() if hasattr(module, "quantization_scheme")]


def _quantization() -> QuantizationConfig:
    return QuantizationConfig(
        config_groups={
            "group_0": {"targets": ["re:.*self_attn.*"], "weights": _ATTENTION},
            "group_1": {"targets": ["re:.*mlp.*"], "weights": _FEED_FORWARD},
        },
        ignore=["lm_head"],
    )


def _config() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=48,
        hidden_size=64,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=128,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
