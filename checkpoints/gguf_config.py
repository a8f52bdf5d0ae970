"""The metadata of a GGUF file of a supported architecture.

``llama`` is the name of Mistral's and SmolLM's models too; newer converters call Mistral Small ``mistral3``, which
llama.cpp computes as it computes ``llama``.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from dataclasses import dataclass

from checkpoints.config_fields import Fields
from checkpoints.description import Description, model_config, token_id
from checkpoints.gguf_rope import read_rope
from checkpoints.gguf_source import GGUFSource
from checkpoints.tables import GGUF_LLAMA, GGUF_QWEN, Table
from jaxinfer.gguf_header import GGUFArray

_EOS_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
"""End of sequence, of turn and of message: llama.cpp ends a text at each of them."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """What the name of an architecture says and the other keys do not.

    Attributes:
        name: begins the keys of the model's shape.
        table: where its tensors go.
        qkv_bias, qk_norm: see ``ModelConfig``.
    """

    name: str
    table: Table
    qkv_bias: bool = False
    qk_norm: bool = False


_ARCHITECTURES = (
    Architecture(name="llama", table=GGUF_LLAMA),
    Architecture(name="mistral3", table=GGUF_LLAMA),
    Architecture(name="qwen2", table=GGUF_QWEN, qkv_bias=True),
    Architecture(name="qwen3", table=GGUF_QWEN, qk_norm=True),
)


def find_architecture(source: GGUFSource) -> Architecture:
    """The architecture that the file names.

    Raises:
        ValueError: it is not supported.
    """
    fields = Fields(source.path, source.metadata)
    for architecture in _ARCHITECTURES:
        if fields.given("general.architecture") == architecture.name:
            return architecture
    names = ", ".join(architecture.name for architecture in _ARCHITECTURES)
    raise fields.error("general.architecture", f"a supported architecture: {names}")


def read_description(source: GGUFSource, architecture: Architecture) -> Description:
    """What the metadata says; the embeddings are tied where the file has no output head.

    Raises:
        ValueError: a value is missing, malformed or not supported.
    """
    fields, arch = Fields(source.path, source.metadata), architecture.name
    _refuse_unsupported(fields, arch)
    num_layers, num_heads = fields.num_layers(f"{arch}.block_count"), fields.integer(f"{arch}.attention.head_count")
    head_dim = _head_dim(fields, arch, num_heads)
    rope = read_rope(source, arch, head_dim)
    config = model_config(
        fields,
        vocab_size=_vocab_size(source, fields, arch),
        hidden_size=fields.integer(f"{arch}.embedding_length"),
        intermediate_size=fields.integer(f"{arch}.feed_forward_length"),
        num_layers=num_layers,
        num_heads=num_heads,
        # The format's own rule: a missing count means as many as query heads.
        num_kv_heads=fields.integer(f"{arch}.attention.head_count_kv", default=num_heads),
        head_dim=head_dim,
        max_position_embeddings=rope.max_position_embeddings,
        rope_theta=rope.theta,
        rope_scaling=rope.scaling,
        norm_eps=fields.number(f"{arch}.attention.layer_norm_rms_epsilon"),
        tie_embeddings="output.weight" not in source.infos,
        windows=(fields.window(f"{arch}.attention.sliding_window"),) * num_layers,
        qkv_bias=architecture.qkv_bias,
        qk_norm=architecture.qk_norm,
    )
    found = (token_id(fields, key, config.vocab_size) for key in _EOS_KEYS)
    return Description(config, tuple(dict.fromkeys(token for token in found if token is not None)))


def _refuse_unsupported(fields: Fields, arch: str) -> None:
    fields.refuse(
        {
            f"{arch}.expert_count": "a mixture of experts",
            f"{arch}.attention.scale": "a scale of its own for the attention",
            f"{arch}.attention.temperature_scale": "a scale of the attention that grows with the position",
        }
    )
    if fields.integer("split.count", default=1) > 1:
        raise fields.error("split.count", "1: a model split over several files is not supported")


def _vocab_size(source: GGUFSource, fields: Fields, arch: str) -> int:
    """Rows of the embedding, which may be padded beyond the tokens.

    Without an embedding the count of tokens is told, so that the load fails with the list of what is missing.
    """
    if embedding := source.infos.get("token_embd.weight"):
        return embedding.shape[0]
    tokens = fields.given("tokenizer.ggml.tokens")
    return tokens.length if isinstance(tokens, GGUFArray) else fields.integer(f"{arch}.vocab_size")


def _head_dim(fields: Fields, arch: str, num_heads: int) -> int:
    """The key's length; where it is missing, width / heads, which is the format's definition.

    One length serves queries, keys and values, and all of it is turned: the other two keys must agree.
    """
    key = f"{arch}.attention.key_length"
    if fields.given(key) is None:
        hidden = fields.integer(f"{arch}.embedding_length")
        if num_heads < 1 or hidden % num_heads:
            raise fields.error(key, f"given, since embedding_length {hidden} is no multiple of {num_heads} heads")
        head_dim = hidden // num_heads
    else:
        head_dim = fields.integer(key)
    for same in (f"{arch}.attention.value_length", f"{arch}.rope.dimension_count"):
        if fields.integer(same, default=head_dim) != head_dim:
            raise fields.error(same, f"equal to the length of a head, {head_dim}")
    return head_dim
