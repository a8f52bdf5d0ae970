"""What ``config.json`` says about how its matrices are quantized.

Only what the tensors themselves do not tell is taken from it. Which modules are quantized, and by which of several
schemes of ``compressed-tensors``, is what the tensors say: lists of names and patterns to match them (``ignore``,
``targets``, ``modules_to_not_convert``, ``dynamic``) are not read, and shapes that fit none of what is written here are
refused.
"""

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from checkpoints.config_fields import Fields


@dataclass(frozen=True, kw_only=True)
class GPTQ:
    """As AutoGPTQ and GPTQModel save it.

    Attributes:
        bits: 4 or 8.
        group_size: inputs that share a scale; None: the whole row.
        zeros_less_one: whether zero points are stored minus one, as in the first version of the format.
    """

    bits: int
    group_size: int | None
    zeros_less_one: bool


@dataclass(frozen=True, kw_only=True)
class AWQ:
    """As AutoAWQ saves it for its ``gemm`` kernel, in 4 bits.

    Attributes:
        group_size: inputs that share a scale; None: the whole row.
    """

    group_size: int | None


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """One way in which ``compressed-tensors`` quantizes some of the modules.

    Attributes:
        bits: 4 or 8.
        group_size: inputs that share a scale; None: the whole row.
        symmetric: whether there are no zero points.
    """

    bits: int
    group_size: int | None
    symmetric: bool


@dataclass(frozen=True, kw_only=True)
class CompressedTensors:
    """As the library ``compressed-tensors`` saves it, packed or one number a byte.

    Attributes:
        schemes: each module has one of them.
        has_activations: whether the model was made for quantized activations, and may carry their scales.
        has_kv_cache: the same of a quantized KV cache.
    """

    schemes: tuple[Scheme, ...]
    has_activations: bool
    has_kv_cache: bool


Packing = GPTQ | AWQ | CompressedTensors

_BITS = (4, 8)
_FORMATS = ("pack-quantized", "int-quantized", "naive-quantized", "mixed-precision")
_STRATEGIES = ("group", "channel", "tensor")


def read_packing(fields: Fields) -> Packing | None:
    """What ``quantization_config``, or ``compression_config`` as it was called once, says; None: floats.

    Raises:
        ValueError: a method, version, format or size is not supported; the message names it and what is.
    """
    written = [key for key in ("quantization_config", "compression_config") if fields.given(key)]
    if not written:
        return None
    quantization = fields.section(written[0])
    default = "compressed-tensors" if written[0] == "compression_config" else None
    method = quantization.text("quant_method", default=default)
    if method not in _METHODS:
        raise quantization.error("quant_method", f"one of those that can be read: {', '.join(_METHODS)}")
    return _METHODS[method](quantization)


def _gptq(fields: Fields) -> GPTQ:
    # AutoGPTQ writes `checkpoint_format` or nothing, GPTQModel both.
    version = _version(fields, ("checkpoint_format", "format"), "gptq", ("gptq", "gptq_v2"))
    fields.refuse({"is_marlin_format": "the order of numbers that the Marlin kernel needs"})
    return GPTQ(
        bits=_bits(fields, "bits", _BITS),
        group_size=_group_size(fields, "group_size"),
        zeros_less_one=version == "gptq",
    )


def _awq(fields: Fields) -> AWQ:
    _version(fields, ("version", "checkpoint_format", "format"), "gemm", ("gemm",))
    # The second names are those of AutoAWQ's own file, which some put into config.json as it is.
    _bits(fields, "w_bit" if fields.given("bits") is None and fields.given("w_bit") else "bits", (4,))
    return AWQ(group_size=_group_size(fields, "q_group_size" if fields.given("q_group_size") else "group_size"))


def _compressed_tensors(fields: Fields) -> CompressedTensors:
    _require_one_of(fields, "format", _FORMATS)
    fields.section("transform_config").refuse({"config_groups": "a model that is rotated as it runs"})
    if (sparsity := fields.section("sparsity_config")).given("format") is not None:
        _require_one_of(sparsity, "format", ("dense",))
    names = fields.section("config_groups").rest(())
    if not names:
        raise fields.error("config_groups", "a mapping with at least one group")
    groups = [fields.section("config_groups").section(name) for name in names]
    schemes = [_scheme(group.section("weights")) for group in groups if group.given("weights") is not None]
    for group in groups:
        if group.given("format") is not None:
            _require_one_of(group, "format", _FORMATS)
    return CompressedTensors(
        schemes=tuple(dict.fromkeys(schemes)),
        has_activations=any(group.given(f"{side}_activations") for group in groups for side in ("input", "output")),
        has_kv_cache=bool(fields.given("kv_cache_scheme")),
    )


def _scheme(weights: Fields) -> Scheme:
    if weights.text("type", default="int") != "int":
        raise weights.error("type", "int: weights of other kinds cannot be read")
    strategy = _strategy(weights)
    return Scheme(
        bits=_bits(weights, "num_bits", _BITS),
        group_size=_group_size(weights, "group_size") if strategy == "group" else None,
        symmetric=weights.flag("symmetric", default=True),
    )


def _strategy(weights: Fields) -> str:
    """What is written, or what the library takes a group size for where nothing is."""
    if weights.given("strategy") is None:
        return "tensor" if weights.given("group_size") is None else "group"
    return _require_one_of(weights, "strategy", _STRATEGIES)


def _version(fields: Fields, keys: tuple[str, ...], default: str, allowed: tuple[str, ...]) -> str:
    """The version of a format, under the first of ``keys`` that is written."""
    key = next((key for key in keys if fields.given(key) is not None), None)
    return default if key is None else _require_one_of(fields, key, allowed)


def _require_one_of(fields: Fields, key: str, allowed: tuple[str, ...]) -> str:
    value = fields.text(key).lower()
    if value not in allowed:
        raise fields.error(key, f"{' or '.join(allowed)}: others cannot be read")
    return value


def _bits(fields: Fields, key: str, allowed: tuple[int, ...]) -> int:
    bits = fields.integer(key)
    if bits not in allowed:
        raise fields.error(key, f"{' or '.join(map(str, allowed))}: others cannot be read")
    return bits


def _group_size(fields: Fields, key: str) -> int | None:
    """Inputs of a group; -1, which stands for the whole row, as None."""
    size = fields.integer(key)
    if size < 1 and size != -1:
        raise fields.error(key, "a positive number, or -1 for the whole row")
    return None if size == -1 else size


_METHODS: Mapping[str, Callable[[Fields], Packing]] = {
    "gptq": _gptq,
    "awq": _awq,
    "compressed-tensors": _compressed_tensors,
}


def told(packing: Packing) -> str:
    """The format in a few words, for messages."""
    match packing:
        case GPTQ():
            return f"{packing.bits} bits {told_groups(packing.group_size)}"
        case AWQ():
            return f"4 bits {told_groups(packing.group_size)}"
    return reprlib.repr([f"{scheme.bits} bits {told_groups(scheme.group_size)}" for scheme in packing.schemes])


def told_groups(group_size: int | None) -> str:
    """Groups in a few words, for messages."""
    return "by whole rows" if group_size is None else f"by groups of {group_size}"
