"""The weights of ``tiny_mistral`` in Mistral's own layout, written from that layout's definition.

Mistral's code turns the adjacent rows (2 i, 2 i + 1) of a head of q and k together, transformers the rows
(i, i + D / 2); so the same model has the rows of each head in another order.
"""

import json

import numpy as np
from safetensors.numpy import load_file, save_file

from reference.fixture import Sources, write_record

NAMES = {
    "model.embed_tokens.weight": "tok_embeddings.weight",
    "model.norm.weight": "norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm.weight": "attention_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attention.wq.weight",
    "self_attn.k_proj.weight": "attention.wk.weight",
    "self_attn.v_proj.weight": "attention.wv.weight",
    "self_attn.o_proj.weight": "attention.wo.weight",
    "mlp.gate_proj.weight": "feed_forward.w1.weight",
    "mlp.down_proj.weight": "feed_forward.w2.weight",
    "mlp.up_proj.weight": "feed_forward.w3.weight",
}


def make(sources: Sources) -> None:
    """Write ``params.json`` and ``consolidated.safetensors`` from the fixture ``tiny_mistral``, which must be there."""
    source = sources.fixtures / "tiny_mistral"
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    folder = sources.fixtures / "tiny_mistral_layout"
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, values in load_file(source / "model.safetensors").items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            values = _interleave_pairs(values, config["head_dim"])
        tensors[_mistral_name(name)] = values
    save_file(tensors, folder / "consolidated.safetensors")
    params = {
        "dim": config["hidden_size"],
        "n_layers": config["num_hidden_layers"],
        "head_dim": config["head_dim"],
        "hidden_dim": config["intermediate_size"],
        "n_heads": config["num_attention_heads"],
        "n_kv_heads": config["num_key_value_heads"],
        "norm_eps": config["rms_norm_eps"],
        "vocab_size": config["vocab_size"],
        "rope_theta": config["rope_parameters"]["rope_theta"],
        "sliding_window": config["sliding_window"],
    }
    (folder / "params.json").write_text(json.dumps(params, indent=2) + "\n", encoding="utf-8")
    write_record(folder, "The model of tiny_mistral in Mistral's own layout; its logits are those of tiny_mistral.")


def _interleave_pairs(values: np.ndarray, head_dim: int) -> np.ndarray:
    """Rows [heads * D, E] of pairs (i, i + D / 2) as rows of pairs (2 i, 2 i + 1)."""
    heads = values.reshape(-1, head_dim, values.shape[1])
    interleaved = np.empty_like(heads)
    interleaved[:, 0::2] = heads[:, : head_dim // 2]
    interleaved[:, 1::2] = heads[:, head_dim // 2 :]
    return interleaved.reshape(values.shape)


def _mistral_name(name: str) -> str:
    if not name.startswith("model.layers."):
        return NAMES[name]
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    return f"layers.{layer}.{NAMES[rest]}"
