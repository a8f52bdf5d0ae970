"""``config.json`` and ``generation_config.json`` as transformers writes them.

A key that transformers leaves out has the default of its own configuration class. Those defaults are honoured where
the class defines them as what a missing key means (heads, head_dim, window); the rest must be written, since a silent
default is how other engines came to run models with a wrong rotary base.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from checkpoints.config_fields import Fields, read_json
from checkpoints.description import Description, token_ids
from checkpoints.huggingface_rope import read_rope
from checkpoints.packed.config import read_packing
from jaxinfer.config import ModelConfig


@dataclass(frozen=True)
class _Family:
    """What is particular to one ``model_type``, defaults as in transformers' configuration class of that name.

    Attributes:
        architecture: the class of the language model in ``architectures``.
        num_kv_heads: what a missing ``num_key_value_heads`` means; None: as many as query heads.
        head_dim: what a missing ``head_dim`` means; None: hidden / heads.
        has_window: whether ``sliding_window`` and ``use_sliding_window`` are read at all.
        uses_window: what a missing ``use_sliding_window`` means.
        window: what a missing ``sliding_window`` means (null means none).
        first_windowed: what a missing ``max_window_layers`` means, the first layer that has the window where no
            ``layer_types`` are written; None: the key is not read, and all layers have it.
        qkv_bias, qk_norm: as in ``ModelConfig``; no key tells.
    """

    architecture: str
    num_kv_heads: int | None = None
    head_dim: int | None = None
    has_window: bool = False
    uses_window: bool = True
    window: int | None = None
    first_windowed: int | None = None
    qkv_bias: bool = False
    qk_norm: bool = False


_QWEN = _Family(
    "Qwen2ForCausalLM",
    num_kv_heads=32,
    has_window=True,
    uses_window=False,
    window=4096,
    first_windowed=28,
    qkv_bias=True,
)

_FAMILIES = {
    "llama": _Family("LlamaForCausalLM"),
    "mistral": _Family("MistralForCausalLM", num_kv_heads=8, has_window=True, window=4096),
    "ministral": _Family("MinistralForCausalLM", num_kv_heads=8, has_window=True, window=4096),
    "qwen2": _QWEN,
    "qwen3": replace(_QWEN, architecture="Qwen3ForCausalLM", head_dim=128, qkv_bias=False, qk_norm=True),
}

_FULL, _SLIDING = "full_attention", "sliding_attention"

_UNSUPPORTED = {
    "attention_bias": "a bias in the attention",
    "mlp_bias": "a bias in the feed-forward layer",
}


def read_description(folder: Path) -> Description:
    """What ``config.json`` says, with the end tokens of ``generation_config.json`` before its own.

    Raises:
        ValueError: the architecture is not supported, or a value is missing, malformed or not supported.
    """
    fields = read_json(folder / "config.json")
    config = _model_config(fields, _family(fields))
    generation_file = folder / "generation_config.json"
    generation = read_json(generation_file) if os.path.lexists(generation_file) else Fields(generation_file, {})
    eos = token_ids(generation, "eos_token_id", config.vocab_size)
    return Description(
        config,
        eos_token_ids=eos or token_ids(fields, "eos_token_id", config.vocab_size),
        packing=read_packing(fields),
    )


def _family(fields: Fields) -> _Family:
    supported = ", ".join(f"{kind} ({family.architecture})" for kind, family in _FAMILIES.items())
    kind = fields.given("model_type")
    family = _FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise fields.error("model_type", f"a supported architecture: {supported}")
    architectures = fields.given("architectures")
    if architectures is not None and architectures != [family.architecture]:
        raise fields.error("architectures", f"a supported architecture: {supported}")
    return family


def _model_config(fields: Fields, family: _Family) -> ModelConfig:
    fields.refuse(_UNSUPPORTED)
    if fields.text("hidden_act", default="silu") != "silu":
        raise fields.error("hidden_act", "silu, the only activation that is supported")
    num_layers, num_heads = fields.num_layers("num_hidden_layers"), fields.integer("num_attention_heads")
    head_dim = _head_dim(fields, family, num_heads)
    rope = read_rope(fields, head_dim)
    return fields.valid(
        ModelConfig,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=_num_kv_heads(fields, family, num_heads),
        head_dim=head_dim,
        max_position_embeddings=rope.max_position_embeddings,
        rope_theta=rope.theta,
        norm_eps=fields.number("rms_norm_eps"),
        tie_embeddings=fields.flag("tie_word_embeddings", default=False),
        windows=_windows(fields, family, num_layers),
        qkv_bias=family.qkv_bias,
        qk_norm=family.qk_norm,
        rope_scaling=rope.scaling,
    )


def _num_kv_heads(fields: Fields, family: _Family, num_heads: int) -> int:
    """Null means as many as query heads in every family; a missing key means the family's default."""
    if "num_key_value_heads" in fields or family.num_kv_heads is None:
        return fields.integer("num_key_value_heads", default=num_heads)
    return family.num_kv_heads


def _head_dim(fields: Fields, family: _Family, num_heads: int) -> int:
    """Null means hidden / heads in every family; a missing key means the family's default."""
    if "head_dim" not in fields and family.head_dim is not None:
        return family.head_dim
    return fields.head_dim("head_dim", "hidden_size", num_heads)


def _windows(fields: Fields, family: _Family, num_layers: int) -> tuple[int | None, ...]:
    """The window of each layer: the one of the model, except where ``layer_types`` says that a layer has none.

    ``MistralConfig`` does not define ``layer_types``; transformers' ``AutoConfig`` reads a Mistral that has them as a
    Ministral, which is what is done here.
    """
    window = _window(fields, family) if family.has_window else None
    if fields.given("layer_types") is None:
        first = 0 if family.first_windowed is None else _first_windowed(fields, family.first_windowed)
        return tuple(window if layer >= first else None for layer in range(num_layers))
    types, keys = fields.entries("layer_types")
    if len(keys) != num_layers:
        raise fields.error("layer_types", f"a list of {num_layers} entries, one for each layer, not of {len(keys)}")
    known = (_FULL, _SLIDING) if family.has_window else (_FULL,)
    for key in keys:
        if types.text(key) not in known:
            raise types.error(key, f"{' or '.join(known)} in a {family.architecture}")
    return tuple(window if types.text(key) == _SLIDING else None for key in keys)


def _first_windowed(fields: Fields, default: int) -> int:
    first = fields.integer("max_window_layers", default=default)
    if first < 0:
        raise fields.error("max_window_layers", "the number of the first layer that has the window, from 0")
    return first


def _window(fields: Fields, family: _Family) -> int | None:
    if not fields.flag("use_sliding_window", default=family.uses_window):
        return None
    return fields.window("sliding_window") if "sliding_window" in fields else family.window
