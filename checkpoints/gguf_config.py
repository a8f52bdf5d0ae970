"""The metadata of a GGUF file of architecture ``llama``, which Mistral and SmolLM models are converted to as well.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from checkpoints.config_fields import Fields
from checkpoints.description import Description, model_config, token_id
from checkpoints.gguf_source import GGUFSource
from jaxinfer.gguf_header import GGUFArray

_SUPPORTED = ("llama",)

_DEFAULT_ROPE_THETA = 10_000.0
"""What llama.cpp, whose format this is, takes for a missing ``rope.freq_base``."""

_UNSUPPORTED = {
    "llama.expert_count": "a mixture of experts",
    "llama.attention.scale": "a scale of its own for the attention",
}

_EOS_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
"""End of sequence, of turn and of message: llama.cpp ends a text at each of them."""


def read_description(source: GGUFSource) -> Description:
    """What the metadata says; the embeddings are tied where the file has no output head.

    Raises:
        ValueError: the architecture is not supported, or a value is missing, malformed or not supported.
    """
    fields = Fields(source.path, source.metadata)
    if fields.given("general.architecture") not in _SUPPORTED:
        raise fields.error("general.architecture", f"a supported architecture: {', '.join(_SUPPORTED)}")
    _refuse_unsupported(fields)
    num_layers, num_heads = fields.num_layers("llama.block_count"), fields.integer("llama.attention.head_count")
    config = model_config(
        fields,
        vocab_size=_vocab_size(source, fields),
        hidden_size=fields.integer("llama.embedding_length"),
        intermediate_size=fields.integer("llama.feed_forward_length"),
        num_layers=num_layers,
        num_heads=num_heads,
        # The format's own rule: a missing count means as many as query heads.
        num_kv_heads=fields.integer("llama.attention.head_count_kv", default=num_heads),
        head_dim=_head_dim(fields, num_heads),
        max_position_embeddings=fields.integer("llama.context_length"),
        rope_theta=fields.number("llama.rope.freq_base", default=_DEFAULT_ROPE_THETA),
        norm_eps=fields.number("llama.attention.layer_norm_rms_epsilon"),
        tie_embeddings="output.weight" not in source.infos,
        windows=(fields.window("llama.attention.sliding_window"),) * num_layers,
    )
    found = (token_id(fields, key, config.vocab_size) for key in _EOS_KEYS)
    return Description(config, tuple(dict.fromkeys(token for token in found if token is not None)))


def _refuse_unsupported(fields: Fields) -> None:
    fields.refuse(_UNSUPPORTED)
    if fields.integer("split.count", default=1) > 1:
        raise fields.error("split.count", "1: a model split over several files is not supported")
    if fields.text("llama.rope.scaling.type", default="none") != "none":
        raise fields.error("llama.rope.scaling.type", "none: scaled rotary angles are not supported")
    for key in ("llama.rope.scaling.factor", "llama.rope.scale_linear"):
        # llama.cpp reads 0 as no scaling.
        if fields.number(key, default=1.0) not in (0.0, 1.0):
            raise fields.error(key, "1: scaled rotary angles are not supported")


def _vocab_size(source: GGUFSource, fields: Fields) -> int:
    """Rows of the embedding, which may be padded beyond the tokens.

    Without an embedding the count of tokens is told, so that the load fails with the list of what is missing.
    """
    if embedding := source.infos.get("token_embd.weight"):
        return embedding.shape[0]
    tokens = fields.given("tokenizer.ggml.tokens")
    return tokens.length if isinstance(tokens, GGUFArray) else fields.integer("llama.vocab_size")


def _head_dim(fields: Fields, num_heads: int) -> int:
    """The key's length; where it is missing, width / heads, which is the format's definition.

    One length serves queries, keys and values, and all of it is turned: the other two keys must agree.
    """
    head_dim = fields.given("llama.attention.key_length")
    if head_dim is None:
        hidden = fields.integer("llama.embedding_length")
        if num_heads < 1 or hidden % num_heads:
            raise fields.error(
                "llama.attention.key_length",
                f"given, since embedding_length {hidden} is no multiple of {num_heads} heads",
            )
        head_dim = hidden // num_heads
    else:
        head_dim = fields.integer("llama.attention.key_length")
    for key in ("llama.attention.value_length", "llama.rope.dimension_count"):
        if fields.integer(key, default=head_dim) != head_dim:
            raise fields.error(key, f"equal to the length of a head, {head_dim}")
    return head_dim
