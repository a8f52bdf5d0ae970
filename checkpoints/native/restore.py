"""From the parts of a native checkpoint to weights on devices, in the form that the products read.

A whole matrix goes to jax's default device. With a mesh, each device gets the rows of its own outputs alone, straight
from the files.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding
from jaxtyping import Array

from checkpoints.float_types import check_float_type
from checkpoints.native.checksum import check_sum
from checkpoints.native.manifest import WEIGHTS, Manifest, part_of, parts_of
from checkpoints.native.manifest_reading import read_manifest
from checkpoints.native.orbax_parts import load_part, part_shapes
from checkpoints.native.part_trees import Tree, flat_shapes, part_tree, with_arrays
from checkpoints.quantization import abstract_weights
from jaxinfer.weights import Formats
from pallas_kernels.quantized_matmul import Int4Weight, Int8Weight, Weight, dequantize


def restore(
    folder: str | Path, *, mesh: Mesh, axis: str | None = None, dtype: np.dtype | type | None = None
) -> Iterator[tuple[str, Weight | Array]]:
    """Yields (name, weight) for each weight of the checkpoint ``folder`` as it is stored, over the devices of a mesh.

    Args:
        folder: a native checkpoint.
        mesh: of devices.
        axis: of the mesh: each matrix whose outputs N it divides is cut along them, with its scales and offsets; all
            else is on every device. None: the last axis.
        dtype: of the floats, float32 or bfloat16; None: as stored.

    Raises:
        ValueError: the checkpoint is damaged, or the mesh has no such axis.
    """
    axis = mesh.axis_names[-1] if axis is None else axis
    if axis not in mesh.axis_names:
        raise ValueError(f"axis is {axis!r}; the mesh has {mesh.axis_names}")
    manifest = read_manifest(Path(folder))
    return restored(Path(folder), manifest, np.dtype(dtype or manifest.dtype), manifest.formats, mesh, axis)


def restored(
    folder: Path,
    manifest: Manifest,
    dtype: np.dtype,
    formats: Formats,
    mesh: Mesh | None = None,
    axis: str = "",
) -> Iterator[tuple[str, Weight | Array]]:
    """Yields (name, weight) for each weight, in the order of the model, part by part.

    Args:
        folder, manifest: the checkpoint.
        dtype: of the floats, float32 or bfloat16.
        formats: what the weights are wanted in. Those that are stored so come as they are, all others as floats.
        mesh, axis: as in ``restore``; without a mesh all is on jax's default device.

    Raises:
        ValueError: ``dtype`` is another one; a part has not the arrays of the model, which is found before the first is
            read; or it is damaged, which is found as it is read.
    """
    check_float_type(dtype)
    expected = abstract_weights(manifest.description.config, np.dtype(jnp.dtype(manifest.dtype)), manifest.formats)
    parts = {part: {name: expected[name] for name in names} for part, names in parts_of(expected).items()}
    for part, weights in parts.items():
        _check_shapes(folder / WEIGHTS / part, part_tree(weights))
    default = SingleDeviceSharding(next(iter(jnp.zeros(()).devices())))

    def sharding(weight: Any) -> Sharding:
        if mesh is None:
            return default
        is_cut = len(weight.shape) == 2 and weight.shape[0] % mesh.shape[axis] == 0
        return NamedSharding(mesh, PartitionSpec(axis) if is_cut else PartitionSpec())

    return _weights(folder, manifest, parts, sharding, dtype, formats)


def _weights(
    folder: Path,
    manifest: Manifest,
    parts: Mapping[str, Mapping[str, Any]],
    sharding: Callable[[Any], Sharding],
    dtype: np.dtype,
    formats: Formats,
) -> Iterator[tuple[str, Weight | Array]]:
    """Holds what is left of one part, and nothing that was yielded."""
    for part, weights in parts.items():
        for file, stored in manifest.part_files(part).items():
            check_sum(folder / file, stored.crc32)
        shardings = {name: jax.tree.map(_constant(sharding(weight)), weight) for name, weight in weights.items()}
        arrays = load_part(folder / WEIGHTS / part, part_tree(shardings))
        for name, weight in weights.items():
            found = with_arrays(weight, arrays.pop(part_of(name)[1]))
            is_as_wanted = name in manifest.formats and manifest.formats[name] == formats.get(name)
            yield name, found if is_as_wanted else _floats(found, dtype)
            del found


def _constant[T](value: T) -> Callable[[Any], T]:
    return lambda _: value


def _floats(weight: Weight | Array, dtype: np.dtype) -> Array:
    return weight.astype(dtype) if isinstance(weight, Array) else _dequantized(weight, dtype)


@partial(jax.jit, static_argnums=1)
def _dequantized(weight: Int8Weight | Int4Weight, dtype: np.dtype) -> Array:
    return dequantize(weight, jnp.dtype(dtype))


def _check_shapes(folder: Path, expected: Tree) -> None:
    found = flat_shapes(part_shapes(folder))
    wanted = flat_shapes(expected)
    if found == wanted:
        return
    for name in sorted({*found, *wanted}):
        if found.get(name) != wanted.get(name):
            raise ValueError(
                f"{folder}: {name} is {found.get(name, 'missing')}; the model has {wanted.get(name, 'none such')}"
            )
