"""The rotary angles of a ``config.json``: their base, their scaling, and the longest context that follows.

Version 4 of transformers writes ``rope_theta`` at the top and the scaling under ``rope_scaling``; version 5 writes both
under ``rope_parameters``. People add a ``rope_scaling`` by hand to files of either kind, so both places are read, and
where they contradict each other the file is refused.
"""

import re
import reprlib
from collections.abc import Callable

from checkpoints import rope_scaling
from checkpoints.config_fields import Fields
from checkpoints.rope_scaling import Rope

_FIRST_WITH_THETA = (4, 33)
"""Version of transformers whose ``LlamaConfig`` got ``rope_theta``, with Code Llama's 1,000,000
(https://github.com/huggingface/transformers/pull/25740). Before that, 10,000 was a constant of the model.
"""

_THETA_BEFORE = 10_000.0

_UNSCALED = ("rope_theta", "partial_rotary_factor")
"""Keys of a section that say nothing of a scaling."""

_NESTED = dict.fromkeys(("full_attention", "sliding_attention"), "having other rotary angles in some layers")
"""Keys under which version 5 of transformers keeps the angles of one kind of layers."""


def read_rope(fields: Fields, head_dim: int) -> Rope:
    """The rotary angles of a model whose heads are ``head_dim`` long.

    Raises:
        ValueError: a value is missing, malformed or not supported, or two places differ.
    """
    sections = [fields.section("rope_scaling"), fields.section("rope_parameters")]
    for section in sections:
        section.refuse(_NESTED)
    for place in (fields, *sections):
        if place.number("partial_rotary_factor", default=1.0) != 1.0:
            raise place.error("partial_rotary_factor", "1: turning a part of the head is not supported")
    theta = _theta(fields, sections)
    context = fields.context("max_position_embeddings")
    scaled = [section for section in sections if _kind(section) != "default"]
    if not scaled:
        return Rope(theta, None, context)
    first, *others = (_SCALINGS[_kind(section)](fields, section, head_dim, theta, context) for section in scaled)
    if any(other != first for other in others):
        raise ValueError(f"{fields.path}: rope_scaling and rope_parameters scale the rotary angles differently")
    return first


def _theta(fields: Fields, sections: list[Fields]) -> float:
    places = (fields, *sections)
    written = {place.number("rope_theta") for place in places if place.given("rope_theta") is not None}
    if not written and fields.given("model_type") == "llama" and _is_older_than_theta(fields):
        return _THETA_BEFORE
    if not written:
        raise fields.error("rope_theta", "given, here or under rope_parameters")
    if len(written) > 1:
        raise ValueError(f"{fields.path}: rope_theta is written twice and differs: {sorted(written)}")
    return written.pop()


def _is_older_than_theta(fields: Fields) -> bool:
    """Whether the file says that a transformers wrote it which knew no ``rope_theta``, as Llama 2's own do."""
    version = re.match(r"(\d{1,4})\.(\d{1,4})", fields.text("transformers_version", default=""))
    return version is not None and (int(version[1]), int(version[2])) < _FIRST_WITH_THETA


def _kind(section: Fields) -> str:
    """The name of the scaling, under ``rope_type`` or, as older versions wrote, under ``type``.

    Without a name there is no scaling, and then there must be none of its parameters either.
    """
    key = "rope_type" if section.given("rope_type") is not None else "type"
    kind = section.text(key, default="default")
    if section.given(key) is None and (parameters := section.rest(_UNSCALED)):
        raise section.error("rope_type", f"given beside {reprlib.repr(parameters[0])}")
    if kind != "default" and kind not in _SCALINGS:
        raise section.error(key, f"default, {', '.join(_SCALINGS)}: no other rotary angles are supported")
    return kind


def _linear(fields: Fields, section: Fields, head_dim: int, theta: float, context: int) -> Rope:
    """The file has the context after scaling, as most published ones do (some, as Vicuna's 16k, the one before).

    vLLM multiplies it by the factor in both cases. Too short a context is an error that the user sees, too long a one
    is noise for an answer, so the file is taken at its word.
    """
    return Rope(theta, section.valid(rope_scaling.linear, head_dim, section.number("factor")), context)


def _llama3(fields: Fields, section: Fields, head_dim: int, theta: float, context: int) -> Rope:
    """The file has the context after scaling."""
    original = _original_context(fields, section)
    if original is None:
        raise section.error("original_max_position_embeddings", "a whole number")
    scaling = section.valid(
        rope_scaling.llama3,
        head_dim,
        theta,
        section.number("factor"),
        section.number("low_freq_factor"),
        section.number("high_freq_factor"),
        original,
    )
    return Rope(theta, scaling, context)


def _yarn(fields: Fields, section: Fields, head_dim: int, theta: float, context: int) -> Rope:
    """What is missing follows as in transformers: the first context is the file's, the factor the ratio of the two.

    The longest context is the first one times the factor, whichever of the two the file has at its top: Qwen's model
    cards add a scaling to files that keep the first.
    """
    original = _original_context(fields, section)
    original = context if original is None else original
    factor = section.number("factor", default=context / original if original > 0 else 1.0)
    scaling = section.valid(
        rope_scaling.yarn,
        head_dim,
        theta,
        factor,
        original,
        # Transformers takes 0 for a missing one.
        section.number("beta_fast", default=32) or 32,
        section.number("beta_slow", default=1) or 1,
        _attention_factor(section, factor),
        section.flag("truncate", default=True),
    )
    return Rope(theta, scaling, int(original * factor))


def _original_context(fields: Fields, section: Fields) -> int | None:
    """Tokens of the context before scaling; None where neither place has it.

    Transformers takes the one at the top of the file where there are two
    (``standardize_rope_params`` in ``modeling_rope_utils.py``).
    """
    key = "original_max_position_embeddings"
    written = {place.integer(key) for place in (fields, section) if place.given(key) is not None}
    if len(written) > 1:
        raise ValueError(f"{fields.path}: {key} is written twice and differs: {reprlib.repr(sorted(written))}")
    return written.pop() if written else None


def _attention_factor(section: Fields, factor: float) -> float | None:
    """The written one, or the one that both weights give (one alone is not read), or None for the paper's."""
    if section.given("attention_factor") is not None:
        return section.number("attention_factor")
    mscale, mscale_all_dim = section.number("mscale", default=0), section.number("mscale_all_dim", default=0)
    if not (mscale and mscale_all_dim):
        return None
    return section.valid(rope_scaling.yarn_attention_factor, factor, mscale, mscale_all_dim)


_SCALINGS: dict[str, Callable[[Fields, Fields, int, float, int], Rope]] = {
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
