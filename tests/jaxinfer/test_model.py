"""The decoder against transformers and against the definition, at every position."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checkpoints.quantization import on_device
from jaxinfer import kv_cache
from jaxinfer.batch import Batch
from jaxinfer.config import ModelConfig, Quantization
from jaxinfer.model import Decoder
from jaxinfer.step_inputs import StepLayout
from jaxinfer.weights import formats_of, weight_shapes
from pallas_kernels.paged_attention import Implementation
from pallas_kernels.quantized_matmul import dequantize
from tests.engines import TINY_MISTRAL, decoder, engine, random_decoder, record_greedy
from tests.numpy_decoder import decoder_logits
from tests.reference import FIXTURES, load_reference, read_hf_weights
from tests.reference import TINY_MISTRAL as CONFIG
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


WITH_BIAS_AND_NORM = ModelConfig(
    vocab_size=60,
    hidden_size=48,
    intermediate_size=80,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    max_position_embeddings=64,
    rope_theta=1000.0,
    norm_eps=1e-5,
    tie_embeddings=True,
    windows=(None, 7),
    qkv_bias=True,
    qk_norm=True,
)


def decoded(weights: Mapping[str, Any], kernels: Implementation) -> tuple[list[int], np.ndarray]:
    """Prompt and greedy tokens but the last, and the logits of the last six, the first of which end a chunk."""
    model = Decoder(WITH_BIAS_AND_NORM, weights, kernels=kernels)
    limits = {"max_num_seqs": 1, "max_chunk_tokens": 16, "max_model_len": 32, "num_kv_pages": 4}
    prompt = np.random.default_rng(2).integers(0, model.config.vocab_size, 11).tolist()
    token_ids, logits = record_greedy(engine(model, few_programs=True, **limits), prompt, 6)
    return prompt + token_ids[:-1], logits


@pytest.mark.parametrize("kernels", ["xla", "pallas"])
def test_bias_and_norm_of_heads_follow_the_definition(kernels: Implementation) -> None:
    """In a prompt's chunk and in a decode row, which come to norm and rotation by different ways; each part counts."""
    weights = _weights(WITH_BIAS_AND_NORM)
    whole, logits = decoded({name: jnp.asarray(array) for name, array in weights.items()}, kernels)
    for without in ("qkv_bias", "qk_norm", None):
        config = WITH_BIAS_AND_NORM if without is None else dataclasses.replace(WITH_BIAS_AND_NORM, **{without: False})
        error = np.abs(logits - decoder_logits(config, weights, whole)[-6:]).max()
        assert (error < TOLERANCE) == (without is None), without


INT8, INT4 = Quantization(bits=8), Quantization(bits=4, group_size=32)


@pytest.mark.parametrize(
    ("quantization", "embeddings", "kernels"),
    [
        (INT8, True, "xla"),
        # A head of floats is that of the tests above, and the quick tests of loading have a whole model in INT4.
        pytest.param(INT8, False, "xla", marks=pytest.mark.slow),
        pytest.param(INT4, False, "xla", marks=pytest.mark.slow),
        pytest.param(INT4, True, "xla", marks=pytest.mark.slow),
        # Interpreted, which takes its time.
        pytest.param(INT8, True, "pallas", marks=pytest.mark.slow),
        pytest.param(INT4, True, "pallas", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_quantized_model_is_that_of_its_dequantized_matrices(
    quantization: Quantization, embeddings: bool, kernels: Implementation
) -> None:
    """Embedding and head are one matrix here."""
    formats = formats_of(WITH_BIAS_AND_NORM, quantization, embeddings=embeddings)
    weights = {name: on_device(name, x, formats.get(name)) for name, x in _weights(WITH_BIAS_AND_NORM).items()}
    whole, logits = decoded(weights, kernels)
    floats = {name: dequantize(w, jnp.dtype(jnp.float32)) if w.shape[1:] else w for name, w in weights.items()}
    assert np.abs(logits - decoder_logits(WITH_BIAS_AND_NORM, floats, whole)[-6:]).max() < TOLERANCE


@pytest.mark.parametrize("chunk", [1, 5, 16, 64])
def test_chunks_give_what_the_whole_prompt_gives(chunk: int) -> None:
    reference = load_reference("tiny_mistral").arrays
    logits = prefill_logits(decoder(TINY_MISTRAL), reference["token_ids"], chunk=chunk, page_size=4)
    assert np.abs(logits - reference["logits"]).max() < TOLERANCE


@pytest.mark.parametrize(("chunk", "page_size"), [(1, 4), (5, 4), (16, 4), (5, 16), (3, 1)])
def test_pages_that_no_window_reads_may_leave_the_table(chunk: int, page_size: int) -> None:
    """Every table here but those of the first chunks starts past the sequence's first page."""
    reference = load_reference("tiny_mistral").arrays
    logits = prefill_logits(
        decoder(TINY_MISTRAL), reference["token_ids"], chunk=chunk, page_size=page_size, drop_pages=True
    )
    assert np.abs(logits - reference["logits"]).max() < TOLERANCE


BF16_TOLERANCE = 0.02
"""Root of the mean squared error over the logits' spread. One rounding to bfloat16 is off by up to 2^-9, 0.2 %; about
thirty stand between an id and its logit in three layers, and independent ones add up to sqrt(30) times that."""


def error(logits: np.ndarray, expected: np.ndarray) -> float:
    return float(np.sqrt(np.mean((logits - expected) ** 2)) / expected.std())


def test_an_engine_in_bfloat16_stays_near_the_definition_in_float64() -> None:
    prompt, num_tokens = load_reference("tiny_mistral").arrays["token_ids"].tolist(), 20
    limits = {"max_num_seqs": 1, "max_chunk_tokens": 16, "few_programs": True}
    bfloat16 = engine(decoder(TINY_MISTRAL, jnp.bfloat16), kv_dtype=jnp.bfloat16, **limits)
    token_ids, logits = record_greedy(bfloat16, prompt, num_tokens)
    rounded = {name: w.astype(jnp.bfloat16) for name, w in read_hf_weights(TINY_MISTRAL, CONFIG).items()}
    whole = prompt + token_ids[:-1]
    expected = decoder_logits(CONFIG, rounded, whole)[-num_tokens:]
    assert logits.dtype == np.float32
    assert error(logits, expected) < BF16_TOLERANCE
    assert token_ids == logits.argmax(axis=1).tolist()
    for window in (7, 9):  # one key too many or too few is more than rounding does
        other = dataclasses.replace(CONFIG, windows=(window,) * 3)
        assert error(logits, decoder_logits(other, rounded, whole)[-num_tokens:]) > 2 * BF16_TOLERANCE


INT8_TOLERANCE = 0.012
"""Of the same measure. A key or value is off by up to half a step, 1/254 of the largest of its head of 16, which is
some 2.5 times a usual one: 0.6 % in the mean. Three layers do so, which adds up to sqrt(3) times that, 1 %."""


def test_an_engine_with_keys_and_values_in_int8_stays_near_the_definition_in_float64() -> None:
    prompt, num_tokens = load_reference("tiny_mistral").arrays["token_ids"].tolist(), 20
    limits = {"max_num_seqs": 1, "max_chunk_tokens": 16, "few_programs": True}
    token_ids, logits = record_greedy(engine(decoder(TINY_MISTRAL), kv_dtype=jnp.int8, **limits), prompt, num_tokens)
    weights, whole = read_hf_weights(TINY_MISTRAL, CONFIG), prompt + token_ids[:-1]
    found = error(logits, decoder_logits(CONFIG, weights, whole)[-num_tokens:])
    assert INT8_TOLERANCE / 3 < found < INT8_TOLERANCE  # pages of bfloat16 would be below
    for window in (7, 9):
        other = dataclasses.replace(CONFIG, windows=(window,) * 3)
        assert error(logits, decoder_logits(other, weights, whole)[-num_tokens:]) > 2 * INT8_TOLERANCE


@pytest.mark.parametrize("name", ["tiny_mistral", "tiny_llama_sharded"])
def test_the_head_of_a_model_in_bfloat16_gives_float32(name: str) -> None:
    """By the product itself, not by a cast of what it rounded: the one product with V columns has float32 results."""
    model = decoder(FIXTURES / name, jnp.bfloat16)
    cache = kv_cache.allocate(model.config, num_pages=(4,), page_size=8, max_num_seqs=2, dtype=jnp.dtype(jnp.bfloat16))
    layout = StepLayout(
        num_rows=2,
        num_chunk_tokens=0,
        max_chunk_tokens=0,
        block_q=1,
        table_widths=(4,),
        num_slots=2,
    )
    step = jax.jit(lambda cache, packed: model(jnp.zeros(3, jnp.int32), cache, layout.unpack(packed)))
    program = step.lower(cache, layout.pack(Batch((), 0, 0))).as_text()
    vocab, hidden = model.config.vocab_size, model.config.hidden_size
    operands = rf"\(tensor<2x{hidden}xbf16>, tensor<{vocab}x{hidden}xbf16>\)"
    assert re.findall(rf"stablehlo.dot_general .* : {operands} -> tensor<2x{vocab}x(\w+)>", program) == ["f32"]


def _weights(config: ModelConfig) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        name: rng.normal(0, shape[-1] ** -0.5 if len(shape) > 1 else 1, shape).astype(np.float32)
        for name, shape in weight_shapes(config).items()
    }
