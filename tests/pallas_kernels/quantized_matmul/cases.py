"""Inputs for tests of ``matmul``, and the call itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from pallas_kernels.quantized_matmul import Config, Implementation, Int4Weight, Int8Weight, matmul
from tests.pallas_kernels.quantized_matmul import numpy_matmul

BFLOAT16 = ml_dtypes.bfloat16
TOLERANCES: dict[Any, float] = {np.float32: 2e-5, BFLOAT16: 2e-2}
"""Largest distance of a row from the definition's, relative to its norm, by the type of x."""

FORMATS: Mapping[str, int] = {
    "float": 0,
    "int8": 0,
    "int4, groups of 32": 32,
    "int4, groups of 64": 64,
    "int4, groups of 128": 128,
    "int4, whole row": -1,
}
"""Each format and the inputs of its groups."""

IMPLEMENTATIONS: tuple[Implementation, ...] = ("xla", "pallas")
"""Those that run on a CPU."""

FUSIONS = ("norm", "bias", "residual", "swiglu")
NORM_EPS = 1e-3
"""Large, so that one that is forgotten shows."""

# What these tests wait for is the compiler: an interpreted kernel is a program of some thousand operations.
_matmul = jax.jit(
    matmul,
    static_argnames=("norm_eps", "swiglu", "out_dtype", "implementation", "config"),
    compiler_options={"xla_backend_optimization_level": 0},
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """The arguments of one product, as NumPy: those of ``numpy_matmul.matmul``."""

    x: np.ndarray
    weight: Any
    fusions: Mapping[str, Any]

    def expected(self) -> np.ndarray:
        """What comes out by the definition."""
        return numpy_matmul.matmul(self.x, self.weight, **self.fusions)

    def error(self, implementation: Implementation, config: Config | None = None) -> float:
        """How far an implementation is off; see ``error_of``."""
        return error_of(run(self, implementation, config), self.expected())

    def with_weight(self, **arrays: np.ndarray) -> "Case":
        """The case with some arrays of its quantized weight replaced."""
        return replace(self, weight=self.weight | arrays)

    def with_matrix(self, matrix: np.ndarray) -> "Case":
        """The case with another float matrix."""
        return replace(self, weight=matrix)


def make_case(
    num_rows: int,
    num_outputs: int,
    num_inputs: int,
    *,
    weight_format: str = "float",
    dtype: Any = np.float32,
    fusions: Sequence[str] = (),
    seed: int = 0,
) -> Case:
    """A product of values with mean zero, in which each part weighs about as much as the others.

    The columns of INT4 from K on hold garbage, and so do the scales and offsets of groups that hold nothing else.
    """
    rng = np.random.default_rng(seed)
    width = num_outputs // 2 if "swiglu" in fusions else num_outputs
    around: dict[str, Any] = {"swiglu": "swiglu" in fusions}
    if "norm" in fusions:
        around |= {"norm": rng.uniform(0.5, 1.5, num_inputs).astype(dtype), "norm_eps": NORM_EPS}
    if "bias" in fusions:
        around["bias"] = rng.standard_normal(num_outputs).astype(dtype)
    if "residual" in fusions:
        around["residual"] = rng.standard_normal((num_rows, width)).astype(dtype)
    # Small where a norm follows, so that its epsilon counts.
    size = 0.05 if "norm" in fusions else 1.0
    return Case(
        x=(size * rng.standard_normal((num_rows, num_inputs))).astype(dtype),
        weight=_weight(rng, num_outputs, num_inputs, weight_format, dtype),
        fusions=around,
    )


def _weight(rng: np.random.Generator, num_outputs: int, num_inputs: int, weight_format: str, dtype: Any) -> Any:
    """A weight whose products have a deviation of about 1."""
    deviation = num_inputs**-0.5
    if weight_format == "float":
        return (deviation * rng.standard_normal((num_outputs, num_inputs))).astype(dtype)
    columns = -(-num_inputs // 128) * 128
    if weight_format == "int8":
        values = rng.integers(-127, 128, (num_outputs, columns), dtype=np.int8)
        values[:, num_inputs:] = 0
        scales = rng.uniform(0.5, 1.5, num_outputs).astype(np.float32) * np.float32(deviation / 73)
        return {"values": values, "scales": scales}
    group_size = FORMATS[weight_format]
    num_groups = 1 if group_size < 0 else columns // group_size
    scales = rng.uniform(0.5, 1.5, (num_outputs, num_groups)) * (deviation / 4.6)
    offsets = -7.5 * scales + deviation * rng.standard_normal(scales.shape)
    is_garbage = np.arange(num_groups) * (columns // num_groups) >= num_inputs
    return {
        "values": rng.integers(0, 256, (num_outputs, columns // 2), dtype=np.uint8),
        "scales": np.where(is_garbage, 999, scales).astype(np.float16),
        "offsets": np.where(is_garbage, -999, offsets).astype(np.float16),
    }


def run(
    case: Case, implementation: Implementation, config: Config | None = None, out_dtype: str | None = None
) -> np.ndarray:
    """What an implementation makes of the case."""
    arrays = {name: jnp.asarray(value) for name, value in case.fusions.items() if isinstance(value, np.ndarray)}
    numbers = {name: value for name, value in case.fusions.items() if name not in arrays}
    weight = _as_weight(case.weight, case.x.shape[1])
    how: dict[str, Any] = {"implementation": implementation, "config": config, "out_dtype": out_dtype}
    return np.asarray(_matmul(jnp.asarray(case.x), weight, **arrays, **numbers, **how))


def _as_weight(weight: Any, num_inputs: int) -> Any:
    if isinstance(weight, np.ndarray):
        return jnp.asarray(weight)
    arrays = {name: jnp.asarray(array) for name, array in weight.items()}
    return (Int4Weight if "offsets" in arrays else Int8Weight)(**arrays, num_inputs=num_inputs)


def error_of(out: np.ndarray, expected: np.ndarray) -> float:
    """Largest distance of a row from what it should be, relative to its norm; NaN counts as infinite."""
    assert out.shape == expected.shape
    distance = np.linalg.norm(out.astype(np.float64) - expected, axis=1)
    return float(np.nan_to_num(distance / np.linalg.norm(expected, axis=1), nan=np.inf).max())
