"""What models say of themselves in the ``config.json`` that their makers published: the keys that a reader looks at.

The values are facts about the models, each with the address of its file, put down without a look at the presets.
"""

import json
from pathlib import Path

_MODELS = json.loads(Path(__file__).with_name("published_configs.json").read_text())

PUBLISHED: dict[str, dict[str, object]] = {name: model["config"] for name, model in _MODELS.items()}
"""By the name of the preset."""

MISTRAL_7B, QWEN2, QWEN3 = (PUBLISHED[name] for name in ("mistral-7b-v0.1", "qwen2.5-7b", "qwen3-8b"))


def without(config: dict[str, object], *keys: str) -> dict[str, object]:
    """The configuration as a file that lacks some keys."""
    return {key: value for key, value in config.items() if key not in keys}
