"""The model and the engine on the GPU kernels, interpreted: what they give on the portable implementation.

A model whose layers all have a window of 8 tokens, over pages of 4, so that every text here is longer than a window and
every window longer than a page.
"""

from collections import Counter

import jax.numpy as jnp
import numpy as np
import pytest

from jaxinfer.engine import Engine
from pallas_kernels.paged_attention.pallas_gpu import launch
from tests.engines import TINY_MISTRAL, count_mixed_steps, decoder, engine, finish, greedy, record_greedy
from tests.numpy_decoder import decoder_logits
from tests.reference import TINY_MISTRAL as CONFIG
from tests.reference import load_reference, read_hf_weights
from tests.scoring import prefill_logits

TOLERANCE = 1e-4
LIMITS = {
    "max_num_seqs": 3,
    "max_chunk_tokens": 16,
    "block_q": 8,
    "max_model_len": 64,
    "page_size": 4,
    "num_kv_pages": 48,
}


@pytest.fixture(scope="module")
def launched() -> Counter:
    """How often a program with each of the two kernels was traced, from here on."""
    counter = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("decode_attention", "paged_attention"):
            patch.setattr(launch, name, counted(getattr(launch, name), counter))
        yield counter


def counted(function, counter):
    def call(*arguments, **options):
        counter[function.__name__] += 1
        return function(*arguments, **options)

    return call


@pytest.fixture(scope="module")
def on_pallas(launched) -> Engine:
    return engine(decoder(TINY_MISTRAL, kernels="pallas"), few_programs=True, **LIMITS)


@pytest.fixture(scope="module")
def on_xla() -> Engine:
    return engine(decoder(TINY_MISTRAL), few_programs=True, **LIMITS)


def answers(tested: Engine) -> dict[str, list[int]]:
    """The ids of several requests together: a short prompt, one of many blocks, one token, and one that has to wait."""
    prompt = load_reference("tiny_mistral").arrays["token_ids"].tolist()
    for name, length, num_tokens in (("short", 3, 24), ("long", 40, 9), ("one", 1, 12), ("late", 33, 15)):
        tested.add_request(name, prompt[:length], greedy(num_tokens))
    return {name: output.outputs[0].token_ids for name, output in finish(tested).items()}


def test_requests_together_get_the_ids_of_the_portable_implementation(on_pallas, on_xla, launched):
    mixed_steps = count_mixed_steps(on_pallas)
    ids = answers(on_pallas)
    assert ids == answers(on_xla)
    assert {name: len(token_ids) for name, token_ids in ids.items()} == {"short": 24, "long": 9, "one": 12, "late": 15}
    assert sum(mixed_steps) >= 2
    assert launched["decode_attention"] > 0
    assert launched["paged_attention"] > 0


def test_the_counters_of_the_cache_are_zero_between_steps(on_pallas):
    answers(on_pallas)
    arrivals = on_pallas._runner._kv_cache.arrivals
    assert arrivals.shape == (LIMITS["max_num_seqs"], CONFIG.num_kv_heads)
    assert not jnp.any(arrivals)


def test_the_logits_of_decoded_tokens_follow_the_definition(on_pallas):
    prompt, num_tokens = load_reference("tiny_mistral").arrays["token_ids"].tolist(), 20
    token_ids, logits = record_greedy(on_pallas, prompt, num_tokens)
    whole = prompt + token_ids[:-1]
    expected = decoder_logits(CONFIG, read_hf_weights(TINY_MISTRAL, CONFIG), whole)[-num_tokens:]
    assert np.abs(logits - expected).max() < TOLERANCE


@pytest.mark.parametrize(("chunk", "block_q", "drop_pages"), [(40, 40, False), (16, 8, True)])
def test_the_logits_of_a_prompt_equal_those_of_transformers(chunk, block_q, drop_pages):
    reference = load_reference("tiny_mistral").arrays
    model = decoder(TINY_MISTRAL, kernels="pallas")
    logits = prefill_logits(
        model, reference["token_ids"], chunk=chunk, page_size=4, block_q=block_q, drop_pages=drop_pages
    )
    assert np.abs(logits - reference["logits"]).max() < TOLERANCE
