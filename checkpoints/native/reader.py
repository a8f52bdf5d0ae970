"""The weights of a native checkpoint, as ``Checkpoint`` gives them; no jax is needed until they are read."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from checkpoints.native.manifest import Manifest
from jaxinfer.weights import Formats, weight_shapes


class NativeReader:
    """One native checkpoint; see ``checkpoints.checkpoint.WeightReader``."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder = folder.absolute()  # to be found again, wherever the process goes meanwhile
        self._manifest = manifest
        self.stored: Formats = manifest.formats
        self.dtypes: Mapping[str, tuple[str, ...]] = {
            name: ("native" if name in self.stored else manifest.dtype,)
            for name in weight_shapes(manifest.description.config)
        }

    def weights(self, dtype: np.dtype | type, formats: Formats) -> Iterator[tuple[str, Any]]:
        """Yields (name, weight), on jax's default device; see ``restore.restored``."""
        from checkpoints.native.restore import restored

        return restored(self._folder, self._manifest, np.dtype(dtype), formats)
