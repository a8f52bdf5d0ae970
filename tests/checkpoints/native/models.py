"""A small model as a native checkpoint, for the tests of its writer and its reader."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from checkpoints.description import Description
from checkpoints.native.writer import write
from checkpoints.quantization import abstract_weights
from jaxinfer.config import Quantization, RopeScaling
from jaxinfer.weights import formats_of
from tests.checkpoints.writers import CONFIG

INT8 = Quantization(bits=8)
INT4 = Quantization(bits=4, group_size=32)
ROWS = Quantization(bits=4)

EVERYTHING = replace(
    CONFIG,
    tie_embeddings=False,
    qkv_bias=True,
    qk_norm=True,
    windows=(None, 7),
    rope_scaling=RopeScaling(tuple(1.1**i for i in range(8)), 1.3),
)
"""A config in which no field has its default, and with every weight that a model can have."""

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

SOURCE = Path(__file__).parents[2] / "fixtures" / "tiny_llama2"
"""What the manifest says was converted, as it needs a model that is there."""


def drawn(quantization: Quantization | None, dtype: np.dtype = BFLOAT16) -> Iterator[tuple[str, Any]]:
    """The model's weights, embedding and head in the format too: any numbers, drawn without a compilation."""
    rng = np.random.default_rng(0)

    def draw(array: jax.ShapeDtypeStruct) -> jax.Array:
        if np.issubdtype(array.dtype, np.integer):
            return jnp.asarray(rng.integers(0, 128, array.shape).astype(array.dtype))
        return jnp.asarray(rng.standard_normal(array.shape).astype(array.dtype))

    formats = formats_of(EVERYTHING, quantization, embeddings=True)
    for name, weight in abstract_weights(EVERYTHING, dtype, formats).items():
        yield name, jax.tree.map(draw, weight)


def write_native(
    destination: Path, quantization: Quantization | None = INT4, dtype: np.dtype = BFLOAT16, **options: Any
) -> Path:
    """The small model in ``destination``."""
    given = {
        "weights": drawn(quantization, dtype),
        "description": Description(EVERYTHING, (2, 7), ("<|end|>",)),
        "source": SOURCE,
        "source_name": "drawn",
        "formats": formats_of(EVERYTHING, quantization, embeddings=True),
        "dtype": dtype,
        "method": None,
    }
    weights, *rest = (given | options).items()
    write(destination, weights[1], **dict(rest))
    return destination


def assert_equal_weights(found: Iterator[tuple[str, Any]], expected: Iterator[tuple[str, Any]]) -> None:
    """The same names in the same order, with the same arrays to the bit."""
    for (name, weight), (wanted_name, wanted) in zip(found, expected, strict=True):
        assert name == wanted_name
        assert jax.tree.structure(weight) == jax.tree.structure(wanted), name  # type and number of inputs
        for array, of_wanted in zip(jax.tree.leaves(weight), jax.tree.leaves(wanted), strict=True):
            assert isinstance(array, jax.Array)
            assert array.dtype == of_wanted.dtype
            assert np.asarray(array).tobytes() == np.asarray(of_wanted).tobytes(), name
