"""Reads ``jaxinfer.json`` as a stranger's file: every key, type and range is checked, then every file that it lists."""

import json
import re
from collections.abc import Callable, Collection
from dataclasses import fields as fields_of
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any

from checkpoints.config_fields import Fields
from checkpoints.description import Description, token_ids
from checkpoints.float_types import FLOAT_TYPES
from checkpoints.native.checksum import check_sum
from checkpoints.native.manifest import (
    FORMAT,
    MANIFEST,
    VERSION,
    WEIGHTS,
    Manifest,
    Source,
    SourceFile,
    StoredFile,
    parts_of,
)
from jaxinfer.config import ModelConfig, Quantization, RopeScaling
from jaxinfer.weights import Formats, weight_shapes

_MAX_BYTES = 64 * 2**20
"""Of the manifest itself; one of 4096 layers takes a few."""

_SHA256 = re.compile("[0-9a-f]{64}")
_KEYS = (
    "format", "version", "config", "eos_token_ids", "eos_spellings", "dtype", "formats", "method", "source", "versions",
    "files",
)  # fmt: skip


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the checkpoint in ``folder``, all of whose files are there.

    The bytes of those that hold no weights, some megabytes of a tokenizer, are compared with their sums here; those of
    weights are as these are read.

    Raises:
        ValueError: the manifest is not one, is of a newer version, or contradicts itself or the files beside it. The
            message names the file and the key.
    """
    path = folder / MANIFEST
    values = Fields(path, _parse(path))
    if values.given("format") != FORMAT:
        raise values.error("format", repr(FORMAT))
    if values.integer("version") != VERSION:
        raise values.error("version", f"{VERSION}, the only one that this program can read")
    _require_keys(values, "", _KEYS)
    config = _config(values)
    manifest = Manifest(
        description=Description(config, _eos_token_ids(values, config), tuple(_texts(values, "eos_spellings"))),
        dtype=_dtype(values),
        formats=_formats(values, config),
        method=None if values.given("method") is None else values.text("method"),
        source=_source(values),
        versions={name: values.section("versions").text(name) for name in _section(values, "versions")},
        files=_files(values),
    )
    _check_parts(values, manifest)
    _check_files(folder, manifest)
    return manifest


def _parse(path: Path) -> dict[str, Any]:
    try:
        status = path.stat()
        if not S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            raise ValueError(f"it must be a file of at most {_MAX_BYTES} bytes")
        values = json.loads(path.read_bytes(), object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: the manifest cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path}: holds a {type(values).__name__}; it must hold a JSON object")
    return values


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        repeated = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"the key {repeated!r:.100} occurs twice")
    return values


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds {name}, which is no JSON")


def _require_keys(values: Fields, section: str, keys: Collection[str]) -> None:
    """Exactly these: what is not known cannot be obeyed."""
    prefix = f"{section}." if section else ""
    unknown = [key for key in values if key not in keys]
    missing = [key for key in keys if key not in values]
    if missing:
        raise ValueError(f"{values.path}: {prefix}{missing[0]} is missing")
    if unknown:
        raise ValueError(f"{values.path}: {prefix}{unknown[0]!r:.100} is not a known key")


def _section(values: Fields, key: str) -> list[str]:
    """The keys of the mapping under ``key``, which must be there."""
    if values.given(key) is None:
        raise values.error(key, "a mapping")
    return list(values.section(key))


def _config(values: Fields) -> ModelConfig:
    names = [field.name for field in fields_of(ModelConfig)]
    _section(values, "config")
    config = values.section("config")
    _require_keys(config, "config", names)
    config.num_layers("num_layers")
    given: dict[str, Any] = {name: config.given(name) for name in names}
    for name in ("tie_embeddings", "qkv_bias", "qk_norm"):
        if not isinstance(given[name], bool):
            raise config.error(name, "true or false")
    if not isinstance(given["windows"], list):
        raise config.error("windows", "a list")
    given["windows"] = tuple(given["windows"])
    if given["rope_scaling"] is not None:
        given["rope_scaling"] = _rope_scaling(config.section("rope_scaling"))
    return config.valid(ModelConfig, **given)


def _rope_scaling(values: Fields) -> RopeScaling:
    _require_keys(values, "config.rope_scaling", ("divisors", "attention_factor"))
    divisors = values.given("divisors")
    if not isinstance(divisors, list):
        raise values.error("divisors", "a list")
    return values.valid(RopeScaling, tuple(divisors), values.number("attention_factor"))


def _eos_token_ids(values: Fields, config: ModelConfig) -> tuple[int, ...]:
    if not isinstance(values.given("eos_token_ids"), list):
        raise values.error("eos_token_ids", "a list")
    return token_ids(values, "eos_token_ids", config.vocab_size)


def _texts(values: Fields, key: str) -> list[str]:
    entries, keys = values.entries(key)
    return [entries.text(name) for name in keys]


def _dtype(values: Fields) -> str:
    if values.text("dtype") not in FLOAT_TYPES:
        raise values.error("dtype", " or ".join(FLOAT_TYPES))
    return values.text("dtype")


def _formats(values: Fields, config: ModelConfig) -> Formats:
    matrices = {name for name, shape in weight_shapes(config).items() if len(shape) == 2}
    formats = {}
    for name in _section(values, "formats"):
        if name not in matrices:
            raise ValueError(f"{values.path}: formats has {name!r:.100}, which is no matrix of the model")
        entry = values.section("formats").section(name)
        _require_keys(entry, f"formats.{name}", ("bits", "group_size"))
        given: dict[str, Any] = {key: entry.given(key) for key in ("bits", "group_size")}
        formats[name] = entry.valid(Quantization, **given)
    return formats


def _source(values: Fields) -> Source:
    _section(values, "source")
    source = values.section("source")
    _require_keys(source, "source", ("name", "layout", "files"))
    return Source(source.text("name"), source.text("layout"), _listed(source, "files", "sha256", _source_file))


def _source_file(entry: Fields) -> SourceFile:
    if not _SHA256.fullmatch(entry.text("sha256")):
        raise entry.error("sha256", "64 hexadecimal digits")
    return SourceFile(_whole(entry, "num_bytes", 2**63), entry.text("sha256"))


def _files(values: Fields) -> dict[str, StoredFile]:
    files = _listed(values, "files", "crc32", lambda entry: StoredFile(
        _whole(entry, "num_bytes", 2**63), _whole(entry, "crc32", 2**32)
    ))  # fmt: skip
    for name in files:
        steps = PurePosixPath(name)
        is_inside = not steps.is_absolute() and ".." not in steps.parts and name != MANIFEST
        if not (is_inside and str(steps) == name and name.isprintable()):
            raise ValueError(f"{values.path}: files has {name!r:.100}; it must be the path of a file of the checkpoint")
    return files


def _listed[T](values: Fields, key: str, sum_key: str, make: Callable[[Fields], T]) -> dict[str, T]:
    """A list of files: ``make`` of the entry of each."""
    found: dict[str, T] = {}
    for name in _section(values, key):
        entry = values.section(key).section(name)
        _require_keys(entry, f"{key}.{name:.100}", ("num_bytes", sum_key))
        found[name] = make(entry)
    return found


def _whole(values: Fields, key: str, end: int) -> int:
    value = values.integer(key)
    if not 0 <= value < end:
        raise values.error(key, f"between 0 and {end - 1}")
    return value


def _check_parts(values: Fields, manifest: Manifest) -> None:
    expected = parts_of(weight_shapes(manifest.description.config))
    found = {name.split("/")[1] for name in manifest.files if _is_of_part(name)}
    for part in expected:
        if part not in found:
            raise ValueError(f"{values.path}: files has none of {WEIGHTS}/{part}, which the model needs")
    for part in found:
        if part not in expected:
            raise ValueError(f"{values.path}: files has {WEIGHTS}/{part!s:.100}, which is no part of the model")


def _is_of_part(name: str) -> bool:
    return name.startswith(f"{WEIGHTS}/") and name.count("/") > 1


def _check_files(folder: Path, manifest: Manifest) -> None:
    """Each is there, of its size, and inside of the folder even where links lead elsewhere."""
    inside = folder.resolve()
    for name, file in manifest.files.items():
        path = folder / name
        try:
            status = path.stat()
            is_inside = path.resolve().is_relative_to(inside)
        except OSError as error:
            raise ValueError(f"{path}: listed in {MANIFEST}, and cannot be read: {error.strerror}") from error
        if not S_ISREG(status.st_mode) or not is_inside:
            raise ValueError(f"{path}: listed in {MANIFEST}; it must be a file inside of the checkpoint")
        if status.st_size != file.num_bytes:
            raise ValueError(f"{path}: has {status.st_size} bytes; {MANIFEST} says {file.num_bytes}")
        if not _is_of_part(name):
            check_sum(path, file.crc32)
