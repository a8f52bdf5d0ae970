"""The fixtures hold what they say: each is checked against the definition, in NumPy, or against itself."""

from dataclasses import replace

import numpy as np
import pytest

from jaxinfer.weights import weight_shapes
from tests.numpy_decoder import decoder_logits
from tests.reference import TINY_MISTRAL, load_reference, read_hf_weights


@pytest.mark.parametrize("name", ["tiny_mistral"])
def test_json_lists_the_arrays(name: str) -> None:
    reference = load_reference(name)
    listed = {key: (tuple(entry["shape"]), entry["dtype"]) for key, entry in reference.info["arrays"].items()}
    assert listed == {key: (array.shape, str(array.dtype)) for key, array in reference.arrays.items()}
    assert name in reference.info["command"]
    assert {"torch", "transformers"} <= reference.info["versions"].keys()


def test_tiny_mistral_agrees_with_the_definition() -> None:
    reference = load_reference("tiny_mistral")
    weights = read_hf_weights(reference.folder, TINY_MISTRAL)
    assert {name: values.shape for name, values in weights.items()} == weight_shapes(TINY_MISTRAL)
    logits = decoder_logits(TINY_MISTRAL, weights, reference.arrays["token_ids"])
    np.testing.assert_allclose(reference.arrays["logits"], logits, atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"windows": (7, 7, 7)},
        {"windows": (9, 9, 9)},
        {"windows": (8, 8, None)},
        {"rope_theta": 10500.0},
        {"norm_eps": 1e-3},
    ],
)
def test_tiny_mistral_tells_a_wrong_model(wrong: dict[str, object]) -> None:
    """Negative controls: at the tolerance of the model's own test, 1e-4, each of these faults is seen."""
    reference = load_reference("tiny_mistral")
    weights = read_hf_weights(reference.folder, TINY_MISTRAL)
    logits = decoder_logits(replace(TINY_MISTRAL, **wrong), weights, reference.arrays["token_ids"])
    assert np.abs(reference.arrays["logits"] - logits).max() > 1e-3
