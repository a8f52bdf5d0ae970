"""Part ``versions``: what it all ran on."""

import platform
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from scripts.on_gpu.part import Row
from scripts.on_gpu.settings import Settings

_PACKAGES = ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "flax", "numpy", "torch", "transformers")
_OF_THE_GPU = "driver_version,memory.total,power.limit,clocks.max.sm,clocks.max.memory"


def rows(settings: Settings) -> Iterator[Row]:
    """What needs no device comes first: it is known even where jax does not start."""
    yield _row("python", platform.python_version())
    yield _row("git commit", _output("git", "rev-parse", "HEAD"))
    yield _row("git status", _output("git", "status", "--short", "--untracked-files=no") or "clean")
    for package in _PACKAGES:
        yield _row(package, _version(package))
    yield _row(_OF_THE_GPU, _output("nvidia-smi", f"--query-gpu={_OF_THE_GPU}", "--format=csv,noheader"))
    import jax  # after what is known without it
    from jax.extend.backend import get_backend

    yield _row("device", f"{len(jax.devices())} x {jax.devices()[0].device_kind}", wrong=_is_wrong(settings))
    yield _row("backend", " ".join(get_backend().platform_version.split()))
    yield _row("memory that XLA takes", str((jax.devices()[0].memory_stats() or {}).get("bytes_limit")))


def _is_wrong(settings: Settings) -> bool:
    """Whether jax runs on a CPU where a GPU was to be measured."""
    import jax

    return jax.default_backend() == "cpu" and not settings.tiny


def _row(what: str, value: str | None, *, wrong: bool = False) -> Row:
    values = {"what": what, "value": value} | ({"fault": "a CPU, where a GPU is to be measured"} if wrong else {})
    return Row("Versions", values, is_fault=wrong)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _output(*command: str) -> str | None:
    """What a command writes; None where there is no such command, or it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
