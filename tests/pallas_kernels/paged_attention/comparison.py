"""How far a result may be from the definition's, and how far it is."""

from typing import Any

import ml_dtypes
import numpy as np

BFLOAT16 = ml_dtypes.bfloat16
TOLERANCES: dict[Any, float] = {np.float32: 2e-5, BFLOAT16: 2e-2}
"""Largest distance of a head from the definition's, relative to its norm, by the type that it was computed in."""


def relative_error(out: np.ndarray, expected: np.ndarray) -> float:
    """Largest distance of a head from what it should be, relative to its norm; NaN counts as infinite.

    Where zeros are expected, anything else is infinitely far off.
    """
    distance = np.linalg.norm(np.asarray(out, np.float64) - expected, axis=-1)
    return relative(distance, np.linalg.norm(expected, axis=-1))


def relative(distance: np.ndarray, norm: np.ndarray) -> float:
    """The largest ratio of the two; 0 / 0 counts as 0, NaN as infinite."""
    with np.errstate(over="ignore"):
        error = np.where(distance == 0, 0.0, distance / np.where(norm > 0, norm, 1e-300))
    return float(np.nan_to_num(error, nan=np.inf).max(initial=0))
