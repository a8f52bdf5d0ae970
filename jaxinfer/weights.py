"""The one declaration of a model's weights: name -> shape.

A checkpoint reader fills exactly these names, a random model draws them, the decoder is built from them. Matrices are
``[out, in]`` with the input axis contiguous, which is what the quantized kernels read. Products that share their input
are one matrix (``qkv``, ``gate_up``), so that a step launches one product for them.
"""

from collections.abc import Mapping

from jaxinfer.config import ModelConfig, Quantization

Formats = Mapping[str, Quantization]
"""How weights are held quantized, by name; one that is left out is held as floats."""


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every weight of the model, in the order of the model.

    With E ``hidden_size``, F ``intermediate_size``, H query heads, K kv heads, D ``head_dim`` and V ``vocab_size``:

    - ``embedding`` [V, E]
    - ``layers.N.attention_norm`` [E], ``layers.N.qkv`` [(H + 2 K) D, E] (rows: all of q, then k, then v, head by head;
      rotary pairs are (i, i + D / 2)), ``layers.N.attention_out`` [E, H D]
    - ``layers.N.qkv_bias`` [(H + 2 K) D] where the model has ``qkv_bias``; ``layers.N.q_norm`` [D] and
      ``layers.N.k_norm`` [D] where it has ``qk_norm``
    - ``layers.N.mlp_norm`` [E], ``layers.N.gate_up`` [2 F, E] (rows: gate, then up), ``layers.N.down`` [E, F]
    - ``final_norm`` [E]
    - ``lm_head`` [V, E], absent when the embeddings are tied
    """
    hidden, heads_dim = config.hidden_size, config.num_heads * config.head_dim
    kv_dim = config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {"embedding": (config.vocab_size, hidden)}
    for i in range(config.num_layers):
        shapes |= {
            f"layers.{i}.attention_norm": (hidden,),
            f"layers.{i}.qkv": (heads_dim + 2 * kv_dim, hidden),
            f"layers.{i}.attention_out": (hidden, heads_dim),
        }
        if config.qkv_bias:
            shapes[f"layers.{i}.qkv_bias"] = (heads_dim + 2 * kv_dim,)
        if config.qk_norm:
            shapes |= {f"layers.{i}.q_norm": (config.head_dim,), f"layers.{i}.k_norm": (config.head_dim,)}
        shapes |= {
            f"layers.{i}.mlp_norm": (hidden,),
            f"layers.{i}.gate_up": (2 * config.intermediate_size, hidden),
            f"layers.{i}.down": (hidden, config.intermediate_size),
        }
    shapes["final_norm"] = (hidden,)
    if not config.tie_embeddings:
        shapes["lm_head"] = (config.vocab_size, hidden)
    return shapes


def formats_of(config: ModelConfig, quantization: Quantization | None, *, embeddings: bool = False) -> Formats:
    """One format for all matrices of the layers, which are nearly all bytes of a model.

    Args:
        config: the shape of the model.
        quantization: the format; None: all weights are floats.
        embeddings: whether embedding and output head have it too.
    """
    if quantization is None:
        return {}
    matrices = (".qkv", ".attention_out", ".gate_up", ".down")
    ends = (*matrices, *EMBEDDINGS) if embeddings else matrices
    return {name: quantization for name in weight_shapes(config) if name.endswith(ends)}


EMBEDDINGS = ("embedding", "lm_head")
"""The names of the matrices with a row for each token."""
