"""What a model directory says about its tokenizer beside the vocabulary: BOS, EOS, the chat template.

Writers disagree on where these stand, so the order of precedence is kept here, in one place:

- BOS and EOS: ``bos_token`` and ``eos_token`` of ``tokenizer_config.json``, else of ``special_tokens_map.json``;
- chat template: ``chat_template.jinja``, else ``chat_template`` of ``tokenizer_config.json`` (of several, ``default``).

``generation_config.json`` and ``config.json`` are not read here: they are the model's, which ``checkpoints`` reads.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class SideFiles:
    """Attributes that are None are not stated by any file."""

    bos_token: str | None
    eos_token: str | None
    add_bos_token: bool | None
    chat_template: str | None
    chat_template_file: Path


def read_side_files(directory: Path) -> SideFiles:
    """Reads the files that exist, with or without a byte order mark.

    ValueError names a file that cannot be read or is no JSON object, or a key of a wrong type.
    """
    config = _read_object(directory / "tokenizer_config.json")
    special = _read_object(directory / "special_tokens_map.json")
    add_bos = config.get("add_bos_token")
    if add_bos is not None and not isinstance(add_bos, bool):
        raise ValueError(
            f"{directory / 'tokenizer_config.json'}: add_bos_token is {add_bos!r}; it must be true or false"
        )
    own_file = directory / "chat_template.jinja"
    template = _read_text(own_file)
    return SideFiles(
        bos_token=_token(directory, config, special, "bos_token"),
        eos_token=_token(directory, config, special, "eos_token"),
        add_bos_token=add_bos,
        chat_template=_chat_template(directory, config) if template is None else template,
        chat_template_file=directory / "tokenizer_config.json" if template is None else own_file,
    )


def _read_text(path: Path) -> str | None:
    try:
        if os.path.lexists(path) and not path.is_file():  # a pipe would be waited for
            raise ValueError(f"{path} cannot be read: it is neither a file nor a link to one")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from error


def _read_object(path: Path) -> dict[str, Any]:
    text = _read_text(path)
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds {type(value).__name__}; it must hold a JSON object")
    return value


def _token(directory: Path, config: dict[str, Any], special: dict[str, Any], key: str) -> str | None:
    for name, source in (("tokenizer_config.json", config), ("special_tokens_map.json", special)):
        value = source.get(key)
        if isinstance(value, dict):  # the long form, with flags beside the spelling
            value = value.get("content")
        if value is None:
            continue
        if not isinstance(value, str):
            raise ValueError(f"{directory / name}: {key} is {value!r}; it must be the token's spelling")
        return value
    return None


def _chat_template(directory: Path, config: dict[str, Any]) -> str | None:
    path = directory / "tokenizer_config.json"
    value = config.get("chat_template")
    if isinstance(value, list):
        value = _default_of(path, value)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{path}: chat_template is {value!r}; it must be text")
    return value


def _default_of(path: Path, entries: list[Any]) -> Any:
    """Of several templates the one named "default"."""
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise ValueError(f"{path}: chat_template has {entry!r}; each of several must have a 'name' that is text")
    return next((entry.get("template") for entry in entries if entry["name"] == "default"), None)
