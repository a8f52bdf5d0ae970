"""Where each tensor of a checkpoint goes: one table per layout.

An entry says that the tensor ``source`` of the file fills the rows ``part`` of the weight ``weight`` (the names of
``jaxinfer.weights``), and in which order the file keeps those rows. ``{layer}`` stands for the number of the layer. A
tensor that a table does not list makes the load fail, so what real files carry beside the weights is listed too.

Rotary pairs: the model turns row i of a head with row i + D / 2. Mistral's layout and GGUF's ``llama`` turn row 2 i
with row 2 i + 1, so rows of q and k change places within their head; GGUF's Qwens are as the model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from jaxinfer.config import ModelConfig

RowOrder = Callable[[np.ndarray, int], np.ndarray]
"""Takes the destination [rows, E] and D, gives a view of it whose entries follow the order of the file."""


def as_is(rows: np.ndarray, head_dim: int) -> np.ndarray:
    """The file has the rows in the order of the model."""
    return rows


def interleaved_pairs(rows: np.ndarray, head_dim: int) -> np.ndarray:
    """The file has rotary pairs side by side: [heads * D, E] seen as [heads, D / 2, 2, E].

    For D = 4 the file's rows 0, 1, 2, 3 of a head go to the model's rows 0, 2, 1, 3.
    """
    return rows.reshape(-1, 2, head_dim // 2, rows.shape[-1]).swapaxes(1, 2)


@dataclass(frozen=True)
class Entry:
    """One line of a table: the tensor ``source`` fills the rows ``part`` of ``weight``."""

    source: str
    weight: str
    part: str = "whole"
    order: RowOrder = as_is


@dataclass(frozen=True, kw_only=True)
class Table:
    """How one layout names and arranges its tensors.

    Attributes:
        entries: every tensor that fills a weight. Entries whose weight the model has not (``lm_head`` of tied
            embeddings) do not apply.
        ignored: tensors that a file may carry and nobody needs.
        copies: tensor -> the one it must be equal to, where its own entry does not apply.
    """

    entries: tuple[Entry, ...]
    ignored: tuple[str, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)


def part_rows(config: ModelConfig) -> dict[str, slice]:
    """Rows that each named part takes of its weight; see ``jaxinfer.weights.weight_shapes``."""
    q = config.num_heads * config.head_dim
    kv = config.num_kv_heads * config.head_dim
    mlp = config.intermediate_size
    return {
        "whole": slice(None),
        "q": slice(0, q),
        "k": slice(q, q + kv),
        "v": slice(q + kv, q + 2 * kv),
        "gate": slice(0, mlp),
        "up": slice(mlp, 2 * mlp),
    }


HUGGINGFACE = Table(
    entries=(
        Entry("model.embed_tokens.weight", "embedding"),
        Entry("model.layers.{layer}.input_layernorm.weight", "layers.{layer}.attention_norm"),
        Entry("model.layers.{layer}.self_attn.q_proj.weight", "layers.{layer}.qkv", "q"),
        Entry("model.layers.{layer}.self_attn.k_proj.weight", "layers.{layer}.qkv", "k"),
        Entry("model.layers.{layer}.self_attn.v_proj.weight", "layers.{layer}.qkv", "v"),
        Entry("model.layers.{layer}.self_attn.q_proj.bias", "layers.{layer}.qkv_bias", "q"),
        Entry("model.layers.{layer}.self_attn.k_proj.bias", "layers.{layer}.qkv_bias", "k"),
        Entry("model.layers.{layer}.self_attn.v_proj.bias", "layers.{layer}.qkv_bias", "v"),
        Entry("model.layers.{layer}.self_attn.q_norm.weight", "layers.{layer}.q_norm"),
        Entry("model.layers.{layer}.self_attn.k_norm.weight", "layers.{layer}.k_norm"),
        Entry("model.layers.{layer}.self_attn.o_proj.weight", "layers.{layer}.attention_out"),
        Entry("model.layers.{layer}.post_attention_layernorm.weight", "layers.{layer}.mlp_norm"),
        Entry("model.layers.{layer}.mlp.gate_proj.weight", "layers.{layer}.gate_up", "gate"),
        Entry("model.layers.{layer}.mlp.up_proj.weight", "layers.{layer}.gate_up", "up"),
        Entry("model.layers.{layer}.mlp.down_proj.weight", "layers.{layer}.down"),
        Entry("model.norm.weight", "final_norm"),
        Entry("lm_head.weight", "lm_head"),
    ),
    # Buffers that older versions of transformers saved; they follow from rope_theta.
    ignored=("model.layers.{layer}.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"),
    copies={"lm_head.weight": "model.embed_tokens.weight"},
)

MISTRAL = Table(
    entries=(
        Entry("tok_embeddings.weight", "embedding"),
        Entry("layers.{layer}.attention_norm.weight", "layers.{layer}.attention_norm"),
        Entry("layers.{layer}.attention.wq.weight", "layers.{layer}.qkv", "q", interleaved_pairs),
        Entry("layers.{layer}.attention.wk.weight", "layers.{layer}.qkv", "k", interleaved_pairs),
        Entry("layers.{layer}.attention.wv.weight", "layers.{layer}.qkv", "v"),
        Entry("layers.{layer}.attention.wo.weight", "layers.{layer}.attention_out"),
        Entry("layers.{layer}.ffn_norm.weight", "layers.{layer}.mlp_norm"),
        Entry("layers.{layer}.feed_forward.w1.weight", "layers.{layer}.gate_up", "gate"),
        Entry("layers.{layer}.feed_forward.w3.weight", "layers.{layer}.gate_up", "up"),
        Entry("layers.{layer}.feed_forward.w2.weight", "layers.{layer}.down"),
        Entry("norm.weight", "final_norm"),
        Entry("output.weight", "lm_head"),
    ),
    # Mistral's own files leave the output out when it is the embedding; a file that says it is tied may have both.
    copies={"output.weight": "tok_embeddings.weight"},
)

_ROPE_DIVISORS = ("rope_freqs.weight",)
"""No weight of the model: the configuration has read it (``checkpoints.gguf_rope``)."""

_GGUF_ENTRIES = (
    Entry("token_embd.weight", "embedding"),
    Entry("blk.{layer}.attn_norm.weight", "layers.{layer}.attention_norm"),
    Entry("blk.{layer}.attn_v.weight", "layers.{layer}.qkv", "v"),
    Entry("blk.{layer}.attn_output.weight", "layers.{layer}.attention_out"),
    Entry("blk.{layer}.ffn_norm.weight", "layers.{layer}.mlp_norm"),
    Entry("blk.{layer}.ffn_gate.weight", "layers.{layer}.gate_up", "gate"),
    Entry("blk.{layer}.ffn_up.weight", "layers.{layer}.gate_up", "up"),
    Entry("blk.{layer}.ffn_down.weight", "layers.{layer}.down"),
    Entry("output_norm.weight", "final_norm"),
    Entry("output.weight", "lm_head"),
)

GGUF_LLAMA = Table(
    entries=(
        *_GGUF_ENTRIES,
        Entry("blk.{layer}.attn_q.weight", "layers.{layer}.qkv", "q", interleaved_pairs),
        Entry("blk.{layer}.attn_k.weight", "layers.{layer}.qkv", "k", interleaved_pairs),
    ),
    ignored=_ROPE_DIVISORS,
)

GGUF_QWEN = Table(
    entries=(
        *_GGUF_ENTRIES,
        Entry("blk.{layer}.attn_q.weight", "layers.{layer}.qkv", "q"),
        Entry("blk.{layer}.attn_k.weight", "layers.{layer}.qkv", "k"),
        Entry("blk.{layer}.attn_q.bias", "layers.{layer}.qkv_bias", "q"),
        Entry("blk.{layer}.attn_k.bias", "layers.{layer}.qkv_bias", "k"),
        Entry("blk.{layer}.attn_v.bias", "layers.{layer}.qkv_bias", "v"),
        Entry("blk.{layer}.attn_q_norm.weight", "layers.{layer}.q_norm"),
        Entry("blk.{layer}.attn_k_norm.weight", "layers.{layer}.k_norm"),
    ),
    ignored=_ROPE_DIVISORS,
)
