"""Reading weights: files in, a ``ModelConfig`` and named arrays out.

What is exported here needs no jax, which takes a second to import: a look at a model's headers should not. What puts
weights on a device is in ``random_weights`` and ``quantization``.
"""

from checkpoints.checkpoint import Checkpoint, open_checkpoint
from checkpoints.locate import locate
from checkpoints.presets import PRESETS

__all__ = ["PRESETS", "Checkpoint", "locate", "open_checkpoint"]
