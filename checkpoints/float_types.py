"""The types in which weights that are floats can be on a device."""

import numpy as np

FLOAT_TYPES = ("float32", "bfloat16")


def check_float_type(dtype: np.dtype) -> None:
    """Fails unless weights can be loaded as ``dtype``.

    Raises:
        ValueError: they cannot.
    """
    if dtype.name not in FLOAT_TYPES:
        raise ValueError(f"dtype is {dtype.name}; weights can be loaded as {' or '.join(FLOAT_TYPES)}")
