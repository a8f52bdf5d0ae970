"""Weights as plain trees of arrays, which is what orbax keeps: of a quantized one its arrays by name."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax

from checkpoints.native.manifest import part_of
from pallas_kernels.quantized_matmul import Int4Weight, Int8Weight

type Tree = dict[str, Any]
"""Of each weight of a part an array, or a dictionary of arrays."""


def part_tree(weights: Mapping[str, Any]) -> Tree:
    """The tree of the weights of one part. In place of arrays there may be anything else that is no tree."""
    return {part_of(name)[1]: _arrays(weight) for name, weight in weights.items()}


def with_arrays(weight: Any, arrays: Any) -> Any:
    """A weight like ``weight``, with what ``part_tree`` had of it."""
    return replace(weight, **arrays) if isinstance(weight, Int8Weight | Int4Weight) else arrays


def flat_shapes(tree: Tree) -> dict[str, str]:
    """Shape and dtype of each array by its path, as text: ``qkv.values`` -> ``uint8[6144, 2048]``."""
    return {
        ".".join(str(step.key) for step in path): f"{leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _arrays(weight: Any) -> Any:
    match weight:
        case Int8Weight():
            return {"values": weight.values, "scales": weight.scales}
        case Int4Weight():
            return {"values": weight.values, "scales": weight.scales, "offsets": weight.offsets}
    return weight
