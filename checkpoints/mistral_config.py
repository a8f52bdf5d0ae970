"""``params.json``, as Mistral publishes it beside ``consolidated.safetensors``.

It says nothing of special tokens, which are the tokenizer's, nor of the longest context.
"""

import logging
from pathlib import Path

from checkpoints.config_fields import Fields, read_json
from checkpoints.description import Description
from jaxinfer.config import ModelConfig

logger = logging.getLogger(__name__)

_DEFAULT_MAX_POSITION_EMBEDDINGS = 32768
"""The context of Mistral 7B in all its versions, taken where ``params.json`` has none."""

_ROPE_THETA_WITH_WINDOW = 10_000.0

_UNSUPPORTED = {
    "moe": "a mixture of experts",
    "vision_encoder": "a vision encoder",
    "lora": "an adapter inside the checkpoint",
    "quantization": "a quantized checkpoint",
    "yarn": "scaling of the rotary angles",
    "llama_4_scaling": "scaling of the queries",
}


def read_description(folder: Path, has_output: bool) -> Description:
    """What ``params.json`` says; the embeddings are tied where it says so or where the files have no output head.

    Raises:
        ValueError: a value is missing, malformed or not supported.
    """
    fields = read_json(folder / "params.json")
    fields.refuse(_UNSUPPORTED)
    if fields.text("model_type", default="transformer") != "transformer":
        raise fields.error("model_type", "transformer, the only supported architecture of this layout")
    num_layers = fields.num_layers("n_layers")
    windows = _windows(fields, num_layers)
    config = fields.valid(
        ModelConfig,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=fields.integer("dim"),
        intermediate_size=fields.integer("hidden_dim"),
        num_layers=num_layers,
        num_heads=fields.integer("n_heads"),
        num_kv_heads=fields.integer("n_kv_heads"),
        head_dim=fields.integer("head_dim"),
        max_position_embeddings=_max_position_embeddings(fields),
        rope_theta=_rope_theta(fields, windows),
        norm_eps=fields.number("norm_eps"),
        tie_embeddings=fields.flag("tied_embeddings", default=not has_output),
        windows=windows,
    )
    return Description(config)


def _max_position_embeddings(fields: Fields) -> int:
    """The longest context, under either of the names that Mistral's files have had for it."""
    for key in ("max_seq_len", "max_position_embeddings"):
        if fields.given(key) is not None:
            return fields.context(key)
    logger.warning(
        "%s names no longest context (max_seq_len); %d is taken, that of Mistral 7B",
        fields.path,
        _DEFAULT_MAX_POSITION_EMBEDDINGS,
    )
    return _DEFAULT_MAX_POSITION_EMBEDDINGS


def _windows(fields: Fields, num_layers: int) -> tuple[int | None, ...]:
    """The window of each layer, from either of two keys: one for all layers, or a list that the layers repeat.

    As in mistral-inference: ``_sliding_window`` stands for ``sliding_window``, only one of them is set, null in a list
    is a layer without a window, and the length of the list divides the number of layers.
    """
    key = "sliding_window"
    if fields.given("_sliding_window") is not None:
        if fields.given(key) is not None:
            raise fields.error("_sliding_window", f"null or left out beside {key}")
        key = "_sliding_window"
    if not isinstance(fields.given(key), list):
        return (fields.window(key),) * num_layers
    windows, keys = fields.entries(key)
    if not keys or num_layers % len(keys):
        raise fields.error(key, f"a list whose length divides the {num_layers} layers")
    return tuple(windows.window(entry) for entry in keys) * (num_layers // len(keys))


def _rope_theta(fields: Fields, windows: tuple[int | None, ...]) -> float:
    """The rotary base. The file of Mistral 7B v0.1 has none and means 10,000.

    Mistral's first engine took 10,000 for a model with a window and 1,000,000 for one without, and transformers'
    converter takes 10,000 for both. So a missing value is clear with one window for all layers, as v0.1 has, and an
    error otherwise.
    """
    if fields.given("rope_theta") is None and windows[0] is not None and len(set(windows)) == 1:
        return _ROPE_THETA_WITH_WINDOW
    return fields.number("rope_theta")
