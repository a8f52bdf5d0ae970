"""The metadata of a GGUF file of a supported architecture.

``llama`` is the name of Mistral's and SmolLM's models too; newer converters call Mistral Small ``mistral3``, which
llama.cpp computes as it computes ``llama``.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from dataclasses import dataclass

from checkpoints.config_fields import Fields
from checkpoints.description import Description, token_id
from checkpoints.gguf_rope import read_rope
from checkpoints.gguf_source import GGUFSource
from checkpoints.tables import GGUF_LLAMA, GGUF_QWEN, Table
from jaxinfer.config import ModelConfig
from jaxinfer.gguf_header import GGUFArray

_EOS_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
"""End of sequence, of turn and of message: llama.cpp ends a text at each of them."""

_EOS_SPELLINGS = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>", "<|endoftext|>")
"""Control tokens of Llama 3, and of Qwen and SmolLM2, at which llama.cpp ends a text for the way they are spelled
(``special_eog_ids`` in ``src/llama-vocab.cpp``): published files name only one token under ``_EOS_KEYS``, where the
``generation_config.json`` of the same model has several.
"""


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
    config = fields.valid(
        ModelConfig,
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
        windows=_windows(fields, arch, num_layers),
        qkv_bias=architecture.qkv_bias,
        qk_norm=architecture.qk_norm,
    )
    found = (token_id(fields, key, config.vocab_size) for key in _EOS_KEYS)
    eos = tuple(dict.fromkeys(token for token in found if token is not None))
    return Description(config, eos, _EOS_SPELLINGS)


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


def _windows(fields: Fields, arch: str, num_layers: int) -> tuple[int | None, ...]:
    """One window for all layers, or for those that ``sliding_window_pattern`` marks.

    The pattern is an array with an entry for each layer. It may also be the number n of layers of which one has no
    window, but whether that is the first or the last of them is a matter of the architecture, and llama.cpp defines
    it for none of these.
    """
    window, key = fields.window(f"{arch}.attention.sliding_window"), f"{arch}.attention.sliding_window_pattern"
    pattern = fields.given(key)
    if pattern is None:
        return (window,) * num_layers
    if not isinstance(pattern, GGUFArray) or pattern.length != num_layers:
        raise fields.error(key, f"an array of {num_layers} entries, one for each layer")
    marks = fields.valid(pattern.items)
    if any(mark not in (0, 1) for mark in marks):  # converters write booleans, some of them as numbers
        raise fields.error(key, "an array of true and false")
    return tuple(window if mark else None for mark in marks)


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
    head_dim = fields.head_dim(f"{arch}.attention.key_length", f"{arch}.embedding_length", num_heads)
    for same in (f"{arch}.attention.value_length", f"{arch}.rope.dimension_count"):
        if fields.integer(same, default=head_dim) != head_dim:
            raise fields.error(same, f"equal to the length of a head, {head_dim}")
    return head_dim
