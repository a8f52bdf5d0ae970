"""Published chat templates of many families, read as files from the package trl, which is not imported."""

import importlib.util
from pathlib import Path

import pytest


def template_names() -> list[str]:
    """All that there are; none where the package is not installed."""
    folder = _folder()
    return [] if folder is None else sorted(path.stem for path in folder.glob("*.jinja"))


def read_template(name: str) -> str:
    """The template ``name``; skips the test where the package is not installed."""
    folder = _folder()
    if folder is None:
        pytest.skip("needs the package trl, for the chat templates inside it: pip install --no-deps trl==1.16.0")
    return (folder / f"{name}.jinja").read_text(encoding="utf-8")


def _folder() -> Path | None:
    spec = importlib.util.find_spec("trl")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "chat_templates"
