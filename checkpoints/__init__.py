"""Reading weights: files in, a ``ModelConfig`` and named arrays out."""

from checkpoints.checkpoint import Checkpoint, open_checkpoint
from checkpoints.locate import locate
from checkpoints.presets import PRESETS, random_weights

__all__ = ["PRESETS", "Checkpoint", "locate", "open_checkpoint", "random_weights"]
