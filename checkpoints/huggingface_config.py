"""``config.json`` and ``generation_config.json`` as transformers writes them.

A key that transformers leaves out has the default of its own configuration class. Those defaults are honoured where
the class defines them as what a missing key means (heads, head_dim, window); the rest must be written, since a silent
default is how other engines came to run models with a wrong rotary base.
"""

from dataclasses import dataclass
from pathlib import Path

from checkpoints.config_fields import Fields, read_json
from checkpoints.description import Description, model_config, token_ids
from jaxinfer.config import ModelConfig


@dataclass(frozen=True)
class _Family:
    """What is particular to one ``model_type``, defaults as in transformers' configuration class of that name.

    Attributes:
        architecture: the class of the language model in ``architectures``.
        num_kv_heads: what a missing ``num_key_value_heads`` means; None: as many as query heads.
        has_window: whether ``sliding_window`` and ``layer_types`` are read at all.
        window: what a missing ``sliding_window`` means (null means none).
    """

    architecture: str
    num_kv_heads: int | None = None
    has_window: bool = False
    window: int | None = None


_FAMILIES = {
    "llama": _Family("LlamaForCausalLM"),
    "mistral": _Family("MistralForCausalLM", num_kv_heads=8, has_window=True, window=4096),
    "ministral": _Family("MinistralForCausalLM", num_kv_heads=8, has_window=True, window=4096),
}

_FULL, _SLIDING = "full_attention", "sliding_attention"

_UNSUPPORTED = {
    "quantization_config": "a checkpoint quantized by another library",
    "compression_config": "a checkpoint compressed by another library",
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
    generation = read_json(generation_file) if generation_file.is_file() else Fields(generation_file, {})
    eos = token_ids(generation, "eos_token_id", config.vocab_size)
    return Description(config, eos or token_ids(fields, "eos_token_id", config.vocab_size))


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
    return model_config(
        fields,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=_num_kv_heads(fields, family, num_heads),
        head_dim=_head_dim(fields, num_heads),
        max_position_embeddings=fields.integer("max_position_embeddings"),
        rope_theta=_rope_theta(fields),
        norm_eps=fields.number("rms_norm_eps"),
        tie_embeddings=fields.flag("tie_word_embeddings", default=False),
        windows=_windows(fields, family, num_layers),
    )


def _num_kv_heads(fields: Fields, family: _Family, num_heads: int) -> int:
    """Null means as many as query heads in every family; a missing key means the family's default."""
    if "num_key_value_heads" in fields or family.num_kv_heads is None:
        return fields.integer("num_key_value_heads", default=num_heads)
    return family.num_kv_heads


def _head_dim(fields: Fields, num_heads: int) -> int:
    """The written one; missing or null means hidden / heads, as the classes define it."""
    if fields.given("head_dim") is not None:
        return fields.integer("head_dim")
    hidden = fields.integer("hidden_size")
    if num_heads < 1 or hidden % num_heads:
        raise fields.error("head_dim", f"given, since hidden_size {hidden} is no multiple of {num_heads} heads")
    return hidden // num_heads


def _windows(fields: Fields, family: _Family, num_layers: int) -> tuple[int | None, ...]:
    """The window of each layer: the one of the model, except where ``layer_types`` says that a layer has none.

    ``MistralConfig`` does not define ``layer_types``; transformers' ``AutoConfig`` reads a Mistral that has them as a
    Ministral, which is what is done here.
    """
    if not family.has_window:
        fields.refuse({"layer_types": "attention of several kinds"})
        return (None,) * num_layers
    window = _window(fields, family)
    if fields.given("layer_types") is None:
        return (window,) * num_layers
    types, keys = fields.entries("layer_types")
    if len(keys) != num_layers:
        raise fields.error("layer_types", f"a list of {num_layers} entries, one for each layer, not of {len(keys)}")
    for key in keys:
        if types.text(key) not in (_FULL, _SLIDING):
            raise types.error(key, f"{_FULL} or {_SLIDING}")
    return tuple(window if types.text(key) == _SLIDING else None for key in keys)


def _window(fields: Fields, family: _Family) -> int | None:
    if not fields.flag("use_sliding_window", default=True):
        return None
    return fields.window("sliding_window") if "sliding_window" in fields else family.window


def _rope_theta(fields: Fields) -> float:
    """The rotary base, from the two places in which versions of transformers keep it.

    Version 4 writes ``rope_theta`` at the top and the scaling under ``rope_scaling``; version 5 writes both under
    ``rope_parameters``.
    """
    sections = (fields.section("rope_scaling"), fields.section("rope_parameters"))
    for section in sections:
        for key in ("rope_type", "type"):
            if section.text(key, default="default") != "default":
                raise section.error(key, "default: scaled rotary angles are not supported")
    for section in (fields, *sections):
        if section.number("partial_rotary_factor", default=1.0) != 1.0:
            raise section.error("partial_rotary_factor", "1: turning a part of the head is not supported")
    written = {
        section.number("rope_theta") for section in (fields, *sections) if section.given("rope_theta") is not None
    }
    if not written:
        raise fields.error("rope_theta", "given, here or under rope_parameters")
    if len(written) > 1:
        raise ValueError(f"{fields.path}: rope_theta is written twice and differs: {sorted(written)}")
    return written.pop()
