"""The chat templates of Llama 3 and Qwen, read as files from the package trl, which is not imported."""

import importlib.util
from pathlib import Path

import pytest


def read_template(name: str) -> str:
    """The template ``name``; skips the test where the package is not installed."""
    spec = importlib.util.find_spec("trl")
    if spec is None or spec.origin is None:
        pytest.skip("needs the package trl, for the chat templates inside it: pip install --no-deps trl==1.16.0")
    return (Path(spec.origin).parent / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")
