"""The decoder against transformers and against the definition, at every position."""

import numpy as np
import pytest

from jaxinfer.config import ModelConfig
from jaxinfer.weights import weight_shapes
from tests.engines import TINY_MISTRAL, decoder, random_decoder
from tests.numpy_decoder import decoder_logits
from tests.reference import FIXTURES, load_reference
from tests.scoring import prefill_logits

TOLERANCE = 1e-4


@pytest.mark.parametrize(("name", "page_size"), [("tiny_mistral", 4), ("tiny_mistral", 16), ("tiny_mistral_layout", 8)])
def test_logits_equal_those_of_transformers(name: str, page_size: int) -> None:
    """head_dim unlike hidden / heads, 4 queries per kv head, window 8 over 40 positions; pages larger and smaller."""
    reference = load_reference("tiny_mistral").arrays
    logits = prefill_logits(decoder(FIXTURES / name), reference["token_ids"], chunk=40, page_size=page_size)
    assert np.abs(logits - reference["logits"]).max() < TOLERANCE


def test_logits_of_a_tied_model_of_several_files_equal_those_of_transformers() -> None:
    reference = load_reference("tiny_llama_sharded").arrays
    logits = prefill_logits(decoder(FIXTURES / "tiny_llama_sharded"), reference["token_ids"], chunk=24)
    assert np.abs(logits - reference["logits"]).max() < TOLERANCE


@pytest.mark.parametrize("window", [7, 9, None])
def test_another_window_gives_other_logits(window: int | None) -> None:
    """The tolerance notices one key too many or too few, and only past the window."""
    reference = load_reference("tiny_mistral").arrays
    model = decoder(TINY_MISTRAL)
    for layer in model.layers:
        layer.attention.window = window
    difference = np.abs(prefill_logits(model, reference["token_ids"], chunk=40) - reference["logits"]).max(axis=1)
    first_wrong = min(window or 8, 8)
    assert difference[:first_wrong].max() < TOLERANCE
    assert (difference[first_wrong:] > TOLERANCE).all()


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(1, 1), (3, 1), (6, 1), (7, 1), (12, 2), (4, 4)])
def test_every_group_size_follows_the_definition(num_heads: int, num_kv_heads: int) -> None:
    config = ModelConfig(
        vocab_size=50,
        hidden_size=20,
        intermediate_size=24,
        num_layers=2,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=6,
        max_position_embeddings=64,
        rope_theta=1000.0,
        norm_eps=1e-6,
        tie_embeddings=False,
        windows=(None, 5),
    )
    weights = _weights(config)
    token_ids = np.random.default_rng(1).integers(0, config.vocab_size, 21)
    logits = prefill_logits(random_decoder(config, weights), token_ids, chunk=21, page_size=4)
    assert np.abs(logits - decoder_logits(config, weights, token_ids)).max() < TOLERANCE


@pytest.mark.parametrize("chunk", [1, 5, 16, 64])
def test_chunks_give_what_the_whole_prompt_gives(chunk: int) -> None:
    reference = load_reference("tiny_mistral").arrays
    logits = prefill_logits(decoder(TINY_MISTRAL), reference["token_ids"], chunk=chunk, page_size=4)
    assert np.abs(logits - reference["logits"]).max() < TOLERANCE


def _weights(config: ModelConfig) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        name: rng.normal(0, shape[-1] ** -0.5 if len(shape) > 1 else 1, shape).astype(np.float32)
        for name, shape in weight_shapes(config).items()
    }
