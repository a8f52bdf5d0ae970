"""The rotary angles of a GGUF file: their base, their scaling, and the longest context that follows.

What the keys mean is what llama.cpp, whose format this is, makes of them
(https://github.com/ggml-org/llama.cpp, ``src/llama-model.cpp`` and ``src/llama-context.cpp``). Llama 3's scaling has no
keys: such files carry the divisors themselves, in a tensor.
"""

from checkpoints import rope_scaling
from checkpoints.config_fields import Fields
from checkpoints.gguf_source import GGUFSource
from checkpoints.rope_scaling import Rope
from jaxinfer.config import RopeScaling

_DIVISORS = "rope_freqs.weight"
_DEFAULT_THETA = 10_000.0
_KINDS = ("none", "linear", "yarn")


def read_rope(source: GGUFSource, arch: str, head_dim: int) -> Rope:
    """The rotary angles of a model whose heads are ``head_dim`` long, from keys that begin with ``arch``.

    Converters copy the context's length from ``config.json``, and it means here what it means there
    (``checkpoints.huggingface_rope``).

    Raises:
        ValueError: a value is missing, malformed or not supported, or the file has two scalings.
    """
    fields = Fields(source.path, source.metadata)
    theta = fields.number(f"{arch}.rope.freq_base", default=_DEFAULT_THETA)
    context = fields.context(f"{arch}.context_length")
    kind = fields.text(f"{arch}.rope.scaling.type", default="linear")
    if kind not in _KINDS:
        raise fields.error(f"{arch}.rope.scaling.type", f"{', '.join(_KINDS)}: no other scaling is supported")
    factor = 1.0 if kind == "none" else _factor(fields, arch)
    if _DIVISORS in source.infos:
        if factor != 1.0:
            raise ValueError(f"{source.path}: {_DIVISORS} and {arch}.rope.scaling both scale the rotary angles")
        return Rope(theta, _divisors(source, fields, head_dim), context)
    if factor == 1.0:
        return Rope(theta, None, context)
    if kind == "linear":
        return Rope(theta, fields.valid(rope_scaling.linear, head_dim, factor), context)
    return _yarn(fields, arch, head_dim, theta, context, factor)


def _factor(fields: Fields, arch: str) -> float:
    """How much longer the context became; the second key is an older name, and 0 means that nothing is scaled."""
    keys = (f"{arch}.rope.scaling.factor", f"{arch}.rope.scale_linear")
    key = next((key for key in keys if key in fields), keys[0])
    return fields.number(key, default=1.0) or 1.0


def _yarn(fields: Fields, arch: str, head_dim: int, theta: float, context: int, factor: float) -> Rope:
    """``attn_factor`` multiplies what YaRN itself makes of the factor.

    ``yarn_log_multiplier`` is DeepSeek's ``mscale_all_dim``, beside an ``mscale`` of 1.
    """
    prefix = f"{arch}.rope.scaling"
    for key in ("yarn_ext_factor", "yarn_attn_factor"):
        if fields.number(f"{prefix}.{key}", default=1.0) != 1.0:
            raise fields.error(f"{prefix}.{key}", "1: no other YaRN is supported")
    original = fields.integer(f"{prefix}.original_context_length", default=context)
    log_multiplier = fields.number(f"{prefix}.yarn_log_multiplier", default=0.0)
    attention_factor = fields.valid(rope_scaling.yarn_attention_factor, factor, 1, log_multiplier)
    scaling = fields.valid(
        rope_scaling.yarn,
        head_dim,
        theta,
        factor,
        original,
        fields.number(f"{prefix}.yarn_beta_fast", default=32),
        fields.number(f"{prefix}.yarn_beta_slow", default=1),
        attention_factor * fields.number(f"{prefix}.attn_factor", default=1.0),
    )
    return Rope(theta, scaling, int(original * factor))


def _divisors(source: GGUFSource, fields: Fields, head_dim: int) -> RopeScaling:
    info = source.infos[_DIVISORS]
    if info.shape != (head_dim // 2,) or not info.readable:
        raise ValueError(
            f"{source.path}: {_DIVISORS} is {info.dtype} of shape {info.shape}; it must be numbers of shape "
            f"({head_dim // 2},), one for each rotary frequency"
        )
    return fields.valid(RopeScaling, tuple(source.read(_DIVISORS).tolist()))
