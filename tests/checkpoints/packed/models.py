"""One small model in each of the packed formats, and the same model as float64."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.checkpoints.packed import writers
from tests.checkpoints.packed.writers import Known
from tests.checkpoints.writers import Tensors, write_hf


@dataclass(frozen=True)
class Case:
    """How a model is packed.

    Attributes:
        write: the tensors of one known matrix.
        config: makes the configuration for a group size.
        matrix: how matrices are drawn.
    """

    write: Callable[[Known], Tensors]
    config: Callable[[int | None], Mapping[str, object]]
    matrix: Mapping[str, object] = field(default_factory=dict)


CASES = {
    "gptq": Case(writers.gptq, writers.gptq_config),
    "gptq_v2": Case(
        lambda known: writers.gptq(known, version="gptq_v2", g_idx=False),
        lambda size: writers.gptq_config(size, checkpoint_format="gptq_v2"),
    ),
    "awq": Case(writers.awq, writers.awq_config),
    "compressed": Case(writers.compressed, lambda size: writers.compressed_config(writers.compressed_weights(size))),
    "compressed_symmetric": Case(
        lambda known: writers.compressed(known, symmetric=True),
        lambda size: writers.compressed_config(writers.compressed_weights(size, symmetric=True)),
        {"symmetric": True},
    ),
}


def write_model(folder: Path, case: Case, group_size: int | None) -> dict[str, np.ndarray]:
    """The model in ``folder``; its weights as float64, from the numbers that were packed."""
    tensors, weights = writers.unpacked_tensors(), dict(writers.float_weights())
    rows: dict[str, list[np.ndarray]] = {}
    for weight, module, shape in writers.layer_matrices():
        known = writers.known_matrix(shape, group_size, seed=len(tensors), **case.matrix)
        tensors |= {f"{module}.{part}": np.ascontiguousarray(array) for part, array in case.write(known).items()}
        rows.setdefault(weight, []).append(known.floats())
    write_hf(folder, tensors, writers.WRITTEN_CONFIG | {"quantization_config": case.config(group_size)})
    return weights | {name: np.concatenate(parts) for name, parts in rows.items()}
