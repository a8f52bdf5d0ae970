"""Models known by name: their shapes, from each model's published ``config.json``, whose address stands beside it.

A preset has no weights. It says what a model takes (``jaxinfer models``), and is what tests and measurements compile.
"""

from checkpoints.presets.llama import LLAMA
from checkpoints.presets.mistral import MISTRAL
from checkpoints.presets.qwen import QWEN
from jaxinfer.config import ModelConfig

PRESETS: dict[str, ModelConfig] = MISTRAL | LLAMA | QWEN
