"""Models of the Hugging Face hub: from an id to files in the local cache.

The cache is asked first, and what it holds whole is used without a word to the network: a model starts offline, and
does not change by itself. Only then is the hub asked, and only for the files that are read here.
"""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import filter as matching
from pathlib import Path, PurePosixPath

from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from checkpoints.checkpoint import weight_files

_ID = re.compile(r"(?P<repo_id>[A-Za-z0-9][\w.-]*/[\w.-]+)(@(?P<revision>[^\s:@]+))?(:(?P<file>[^:]+\.gguf))?")

_TOKENIZERS = ["tokenizer.json", "tokenizer.model*", "tekken.json"]
_DESCRIPTIONS = [
    *_TOKENIZERS,
    "config.json",
    "generation_config.json",
    "params.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
]
_LAYOUTS = {"config.json": "model", "params.json": "consolidated"}
"""A layout's configuration and how the names of its weights begin, in the order of ``detect_layout``."""

_WEIGHT_SUFFIXES = (".safetensors", ".gguf", ".bin", ".pth", ".pt", ".npz", ".onnx", ".h5")


@dataclass(frozen=True)
class HubId:
    """What ``owner/name``, ``owner/name@revision`` and ``owner/name:file.gguf`` stand for; both may be given.

    A colon, since ``owner/name/file.gguf`` would be a path, and a misspelled path must not be asked for on the network.

    Attributes:
        repo_id: ``owner/name``.
        revision: a branch, tag or commit; None: the main branch.
        file: a GGUF file of the repository; None: its safetensors.
    """

    repo_id: str
    revision: str | None = None
    file: str | None = None

    @classmethod
    def parse(cls, typed: str) -> "HubId | None":
        """The id that was typed, or None where it is none. ``folder/name.gguf`` is a path."""
        match = _ID.fullmatch(typed)
        if match is None or match["repo_id"].endswith(".gguf"):
            return None
        found = cls(**match.groupdict())
        steps = PurePosixPath(found.file or "").parts
        return None if ".." in steps or "/" in steps else found  # no file of a repository lies outside of it

    def __str__(self) -> str:
        revision, file = self.revision and f"@{self.revision}", self.file and f":{self.file}"
        return f"{self.repo_id}{revision or ''}{file or ''}"


def find_on_hub(model: HubId, cache_dir: Path | None = None) -> Path:
    """The GGUF file or the folder of ``model`` in the cache, downloaded if it is not there as a whole.

    Args:
        model: which one.
        cache_dir: the hub cache; None: the user's own.

    Raises:
        ValueError: neither the cache nor the hub has it; the message says what was looked for where, and what to do.
    """
    try:
        return _cached(model, cache_dir)
    except HFValidationError as error:  # the id is none by the hub's own rules
        raise ValueError(f"model is {str(model)!r}, which is no Hugging Face id: {error}") from error
    except Exception as error:  # the hub passes on what its HTTP client raises, and which client varies by version
        in_cache = _cache_fault(error)
    try:
        return _downloaded(model, cache_dir)
    except Exception as error:
        raise ValueError(
            f"{str(model)!r} is no file or folder here, and not to be had from the Hugging Face hub:\n"
            f"  in the cache, {cache_dir or constants.HF_HUB_CACHE}: {in_cache}\n"
            f"  on the network, {constants.ENDPOINT}: {_network_fault(model, error)}"
        ) from error


def _cached(model: HubId, cache_dir: Path | None) -> Path:
    """Fails where the cache holds a part: another program wanted the tokenizer only, or a download was interrupted.

    The hub's own look knows only where it has kept the list of the repository's files, ``weight_files`` always.
    """
    if model.file is not None:
        return _fetch_file(model, model.file, cache_dir, local_files_only=True)
    folder = _fetch(model, cache_dir, _DESCRIPTIONS, local_files_only=True)
    names = os.listdir(folder)
    _fetch(model, cache_dir, _wanted(model, names), local_files_only=True)
    weight_files(folder)
    if not any(matching(names, pattern) for pattern in _TOKENIZERS):
        raise ValueError(f"no tokenizer; to go without one, give the folder {folder}")
    return folder


def _downloaded(model: HubId, cache_dir: Path | None) -> Path:
    # First of all since it is the only request to the hub that can be given a time limit.
    info = HfApi().model_info(model.repo_id, revision=model.revision, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    names = [sibling.rfilename for sibling in info.siblings or []]
    if model.file is not None:
        if model.file not in names:
            others = ", ".join(sorted(matching(names, "*.gguf"))) or "none"
            raise ValueError(f"{model.repo_id} has no {model.file}; its GGUF files: {others}")
        return _fetch_file(model, model.file, cache_dir, local_files_only=False)
    folder = _fetch(model, cache_dir, _wanted(model, names), local_files_only=False)
    weight_files(folder)
    return folder


def _fetch_file(model: HubId, file: str, cache_dir: Path | None, *, local_files_only: bool) -> Path:
    return Path(
        hf_hub_download(
            model.repo_id, file, revision=model.revision, cache_dir=cache_dir, local_files_only=local_files_only
        )
    )


def _fetch(model: HubId, cache_dir: Path | None, patterns: list[str], *, local_files_only: bool) -> Path:
    return Path(
        snapshot_download(
            model.repo_id,
            revision=model.revision,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            allow_patterns=patterns,
        )
    )


def _wanted(model: HubId, names: Collection[str]) -> list[str]:
    """Patterns of the files to read, of one layout: Mistral's repositories hold the same weights in both.

    Raises:
        ValueError: neither layout is there.
    """
    for description, stem in _LAYOUTS.items():
        weights = f"{stem}*.safetensors"
        if description in names and matching(names, weights):
            return [*_DESCRIPTIONS, weights, f"{stem}.safetensors.index.json"]
    found = sorted(name for name in names if name.endswith(_WEIGHT_SUFFIXES))
    one = next((f"; a GGUF file is named as {model.repo_id}:{name}" for name in found if name.endswith(".gguf")), "")
    raise ValueError(
        "neither config.json with model*.safetensors nor params.json with consolidated*.safetensors; "
        f"the weights there are {', '.join(found) or 'none'}{one}"
    )


def _cache_fault(error: Exception) -> str:
    """``IncompleteSnapshotError`` of newer hubs brings the folder; without it nothing of the model is there."""
    folder = getattr(error, "snapshot_path", None)
    if folder is None:
        return "nothing of it" if isinstance(error, LocalEntryNotFoundError) else f"a part of it: {error}"
    try:
        weight_files(Path(folder))
    except ValueError as fault:
        return f"a part of it: {fault}"
    return f"its weights, but not all that is beside them; to go without that, give the folder {folder}. {error}"


def _network_fault(model: HubId, error: Exception) -> str:
    if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # why the hub could not be asked; the error itself says once more what the cache lacks
    login = "set HF_TOKEN or run `hf auth login`"
    revision = f" --revision {model.revision}" if model.revision else ""
    elsewhere = f"run `hf download {model.repo_id}{revision}` where there is a network, and copy the cache"
    match error:
        case OfflineModeIsEnabled():
            return f"not asked, since HF_HUB_OFFLINE is set; unset it, or {elsewhere}"
        case GatedRepoError():
            return f"access is restricted: ask for it at {constants.ENDPOINT}/{model.repo_id}, then {login}"
        case RepositoryNotFoundError():
            return f"there is no model {model.repo_id}, or it is private: check the name, or {login}"
        case RevisionNotFoundError():
            return f"{model.repo_id} has no revision {model.revision!r}"
        case HfHubHTTPError():
            return f"it answered: {_first_line(error)}"
        case ValueError():
            return str(error)
        case _:
            return f"{type(error).__name__}: {_first_line(error)}; try again, or {elsewhere}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
