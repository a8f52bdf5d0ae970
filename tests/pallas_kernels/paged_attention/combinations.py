"""What the tests of attention combine: every value that models, caches and the GPU kernel's configs have.

All products of them would take hours, so ``covering`` takes a few in which every value occurs, each beside other ones;
``test_sweep`` takes the product of the larger ones.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pallas_kernels.paged_attention import Config
from tests.pallas_kernels.paged_attention.comparison import BFLOAT16

GROUPS = (1, 3, 4, 6, 8, 12)
HEAD_DIMS = (8, 64, 80, 96, 128, 256)
TYPES = ((np.float32, np.float32), (BFLOAT16, BFLOAT16), (np.float32, np.int8), (BFLOAT16, np.int8))
"""Of the queries and of the pages."""

WINDOWS = ("none", "below a page", "a page", "over a page")
SHAPES: Mapping[str, Sequence[Any]] = {
    "group": GROUPS,
    "head_dim": HEAD_DIMS,
    "types": TYPES,
    "page_size": (4, 16, 64),
    "window": WINDOWS,
    "drop_pages": (False, True),
}
CALLS: Mapping[str, Sequence[Any]] = {"block_q": (1, 16, 32), "num_before": (None, 0, 5)}
CONFIGS: Mapping[str, Sequence[Any]] = {
    "num_splits": range(1, 9),
    "combine": ("last_split", "second_kernel"),
    "block_rows": (16, 32, 64),
    "block_keys": (16, 32, 64),
}


def covering(axes: Mapping[str, Sequence[Any]], count: int, seed: int = 0) -> list[dict[str, Any]]:
    """``count`` combinations, one value of each axis in each, every value about equally often."""
    rng = np.random.default_rng(seed)
    columns = {}
    for name, values in axes.items():
        rounds = -(-count // len(values))
        columns[name] = [values[i] for _ in range(rounds) for i in rng.permutation(len(values))]
    return [{name: column[i] for name, column in columns.items()} for i in range(count)]


def window_of(kind: str, page_size: int) -> int | None:
    """The window of a kind for a page size of at least 2."""
    return {"none": None, "below a page": page_size - 1, "a page": page_size, "over a page": 2 * page_size + 1}[kind]


def config_of(combination: Mapping[str, Any]) -> Config:
    """The config that a combination names."""
    return Config(**{name: combination[name] for name in CONFIGS})


def name_of(value: Any) -> str:
    """A combination, or a part of one, for the name of a test."""
    if isinstance(value, Mapping):
        return "-".join(map(name_of, value.values()))
    if isinstance(value, tuple):
        return "+".join(map(name_of, value))
    return getattr(value, "__name__", str(value).replace(" ", "_"))
