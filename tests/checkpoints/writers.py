"""Writes one small model in each layout, so that readers are compared with arrays that are known.

Every layout is made from the model's own arrays by its definition, row by row where rows change places; nothing here
uses the readers' tables.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import gguf
import numpy as np
from safetensors.numpy import save_file

from jaxinfer.config import ModelConfig
from jaxinfer.weights import weight_shapes

Tensors = dict[str, np.ndarray]

# Two query heads per kv head, head_dim unlike hidden / heads; every row a multiple of 32, the block of Q8_0.
CONFIG = ModelConfig(
    vocab_size=48,
    hidden_size=32,
    intermediate_size=96,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    max_position_embeddings=128,
    rope_theta=5000.0,
    norm_eps=1e-5,
    tie_embeddings=False,
    windows=(None, None),
)

HF_CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "rope_theta": 5000.0,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

MISTRAL_PARAMS = {
    "dim": 32,
    "n_layers": 2,
    "head_dim": 16,
    "hidden_dim": 96,
    "n_heads": 4,
    "n_kv_heads": 2,
    "norm_eps": 1e-5,
    "vocab_size": 48,
    "rope_theta": 5000.0,
    "max_seq_len": 128,
}

GGUF_METADATA = {
    "llama.vocab_size": 48,
    "llama.block_count": 2,
    "llama.context_length": 128,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.key_length": 16,
    "llama.attention.value_length": 16,
    "llama.rope.dimension_count": 16,
    "llama.rope.freq_base": 5000.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}


def gguf_metadata(config: ModelConfig, architecture: str) -> dict[str, object]:
    """The keys of a model without windows and scaling, as converters write them."""
    values = {
        "vocab_size": config.vocab_size,
        "block_count": config.num_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "rope.freq_base": config.rope_theta,
        "attention.layer_norm_rms_epsilon": config.norm_eps,
    }
    return {f"{architecture}.{key}": value for key, value in values.items()}


def known_weights(config: ModelConfig = CONFIG) -> Tensors:
    """Weights that bfloat16, float16 and Q8_0 all hold without loss.

    Whole numbers up to 127 in steps of 1/128: 7 bits, and each block of 32 has a 127, so that Q8_0's scale is 1/128.
    """
    rng = np.random.default_rng(7)
    weights = {}
    for name, shape in weight_shapes(config).items():
        values = rng.integers(-126, 127, shape)
        values[..., ::32] = 127
        weights[name] = (values / 128).astype(np.float32)
    return weights


def model_rows(weights: Tensors, config: ModelConfig = CONFIG) -> Tensors:
    """The fused weights taken apart: q, k, v, their biases, gate and up of each layer under their own names."""
    parts = dict(weights)
    q, kv, mlp = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim, config.intermediate_size
    for i in range(config.num_layers):
        qkv, gate_up = parts.pop(f"layers.{i}.qkv"), parts.pop(f"layers.{i}.gate_up")
        parts[f"layers.{i}.q"] = qkv[:q]
        parts[f"layers.{i}.k"] = qkv[q : q + kv]
        parts[f"layers.{i}.v"] = qkv[q + kv :]
        if config.qkv_bias:
            bias = parts.pop(f"layers.{i}.qkv_bias")
            parts[f"layers.{i}.q_bias"] = bias[:q]
            parts[f"layers.{i}.k_bias"] = bias[q : q + kv]
            parts[f"layers.{i}.v_bias"] = bias[q + kv :]
        parts[f"layers.{i}.gate"] = gate_up[:mlp]
        parts[f"layers.{i}.up"] = gate_up[mlp:]
    return parts


def interleave(rows: np.ndarray, head_dim: int) -> np.ndarray:
    """Rotary pairs (i, i + D / 2) of every head put side by side, at (2 i, 2 i + 1)."""
    out = np.empty_like(rows)
    for head in range(0, len(rows), head_dim):
        for i in range(head_dim // 2):
            out[head + 2 * i] = rows[head + i]
            out[head + 2 * i + 1] = rows[head + i + head_dim // 2]
    return out


def _renamed(parts: Tensors, names: Mapping[str, str], interleaved: bool, head_dim: int) -> Tensors:
    tensors = {}
    for name, array in parts.items():
        layer, _, kind = name.removeprefix("layers.").partition(".")
        file_name = names[kind].format(layer) if kind else names[name]
        if interleaved and kind in ("q", "k"):
            array = interleave(array, head_dim)
        tensors[file_name] = np.ascontiguousarray(array)
    return tensors


def hf_tensors(weights: Tensors, config: ModelConfig = CONFIG) -> Tensors:
    names = {
        "embedding": "model.embed_tokens.weight",
        "attention_norm": "model.layers.{}.input_layernorm.weight",
        "q": "model.layers.{}.self_attn.q_proj.weight",
        "k": "model.layers.{}.self_attn.k_proj.weight",
        "v": "model.layers.{}.self_attn.v_proj.weight",
        "q_bias": "model.layers.{}.self_attn.q_proj.bias",
        "k_bias": "model.layers.{}.self_attn.k_proj.bias",
        "v_bias": "model.layers.{}.self_attn.v_proj.bias",
        "q_norm": "model.layers.{}.self_attn.q_norm.weight",
        "k_norm": "model.layers.{}.self_attn.k_norm.weight",
        "attention_out": "model.layers.{}.self_attn.o_proj.weight",
        "mlp_norm": "model.layers.{}.post_attention_layernorm.weight",
        "gate": "model.layers.{}.mlp.gate_proj.weight",
        "up": "model.layers.{}.mlp.up_proj.weight",
        "down": "model.layers.{}.mlp.down_proj.weight",
        "final_norm": "model.norm.weight",
        "lm_head": "lm_head.weight",
    }
    return _renamed(model_rows(weights, config), names, False, config.head_dim)


def mistral_tensors(weights: Tensors, config: ModelConfig = CONFIG) -> Tensors:
    names = {
        "embedding": "tok_embeddings.weight",
        "attention_norm": "layers.{}.attention_norm.weight",
        "q": "layers.{}.attention.wq.weight",
        "k": "layers.{}.attention.wk.weight",
        "v": "layers.{}.attention.wv.weight",
        "attention_out": "layers.{}.attention.wo.weight",
        "mlp_norm": "layers.{}.ffn_norm.weight",
        "gate": "layers.{}.feed_forward.w1.weight",
        "up": "layers.{}.feed_forward.w3.weight",
        "down": "layers.{}.feed_forward.w2.weight",
        "final_norm": "norm.weight",
        "lm_head": "output.weight",
    }
    return _renamed(model_rows(weights, config), names, True, config.head_dim)


def gguf_tensors(weights: Tensors, config: ModelConfig = CONFIG, *, architecture: str = "llama") -> Tensors:
    """Only converters to ``llama`` put rotary pairs side by side."""
    names = {
        "embedding": "token_embd.weight",
        "attention_norm": "blk.{}.attn_norm.weight",
        "q": "blk.{}.attn_q.weight",
        "k": "blk.{}.attn_k.weight",
        "v": "blk.{}.attn_v.weight",
        "q_bias": "blk.{}.attn_q.bias",
        "k_bias": "blk.{}.attn_k.bias",
        "v_bias": "blk.{}.attn_v.bias",
        "q_norm": "blk.{}.attn_q_norm.weight",
        "k_norm": "blk.{}.attn_k_norm.weight",
        "attention_out": "blk.{}.attn_output.weight",
        "mlp_norm": "blk.{}.ffn_norm.weight",
        "gate": "blk.{}.ffn_gate.weight",
        "up": "blk.{}.ffn_up.weight",
        "down": "blk.{}.ffn_down.weight",
        "final_norm": "output_norm.weight",
        "lm_head": "output.weight",
    }
    return _renamed(model_rows(weights, config), names, architecture == "llama", config.head_dim)


def write_json(path: Path, values: object) -> None:
    path.write_text(json.dumps(values))


def write_hf(folder: Path, tensors: Tensors, config: Mapping[str, object] = HF_CONFIG) -> Path:
    folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", config)
    save_file(tensors, folder / "model.safetensors")
    return folder


def write_hf_shards(
    folder: Path, tensors: Tensors, config: Mapping[str, object] = HF_CONFIG, *, num_shards: int = 3
) -> Path:
    """Every third tensor into the same file, as no writer would split them, and an index."""
    folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", config)
    weight_map = {}
    for shard in range(num_shards):
        file = f"model-{shard + 1:05}-of-{num_shards:05}.safetensors"
        some = dict(list(tensors.items())[shard::num_shards])
        save_file(some, folder / file)
        weight_map |= dict.fromkeys(some, file)
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})
    return folder


def write_mistral(folder: Path, tensors: Tensors, params: Mapping[str, object] = MISTRAL_PARAMS) -> Path:
    folder.mkdir(exist_ok=True)
    write_json(folder / "params.json", params)
    save_file(tensors, folder / "consolidated.safetensors")
    return folder


def write_gguf(
    path: Path,
    tensors: Tensors,
    metadata: Mapping[str, object] = GGUF_METADATA,
    *,
    architecture: str = "llama",
    matrices: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    others: Mapping[str, gguf.GGMLQuantizationType] = MappingProxyType({}),
) -> Path:
    """``matrices`` is the type of all but the norms, as converters do it, and those of ``others``. Tensors of
    bytes are written as they are, as blocks of their type.
    """
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
    for name, array in tensors.items():
        kind = others.get(name, matrices) if array.ndim > 1 else gguf.GGMLQuantizationType.F32
        data = array if array.dtype == np.uint8 else gguf.quantize(array, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
