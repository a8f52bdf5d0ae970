"""Bias, penalties and log-probabilities of a real engine, each token against one pass over its whole sequence in NumPy.

The model has layers with a window and without, the pool is too small for all requests, and prompts share prefixes, so
that tokens are read in pieces, found in the cache, and read once more after a preemption.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from checkpoints import open_checkpoint
from jaxinfer.engine import Engine
from jaxinfer.logprobs import Logprob
from jaxinfer.outputs import RequestOutput
from jaxinfer.request import Request
from jaxinfer.sampling_params import SamplingParams
from tests.engines import engine, finish, greedy, random_decoder, run_alone
from tests.jaxinfer.numpy_sampling import adjusted
from tests.numpy_decoder import decoder_logits
from tests.reference import FIXTURES

CHECKPOINT = open_checkpoint(FIXTURES / "tiny_two_groups")
CONFIG = replace(CHECKPOINT.config, windows=(None, 40, None, 40))
WEIGHTS = dict(CHECKPOINT.weights(np.dtype(np.float32)))
CLOSE = 2e-4

PENALTIES = {"presence_penalty": 0.9, "frequency_penalty": 0.4, "repetition_penalty": 1.5}
BIAS = {3: 4.0, 7: 3.5, 11: -100.0}


@pytest.fixture(scope="module")
def serving() -> Engine:
    limits = {"max_model_len": 96, "max_num_seqs": 3, "num_kv_pages": 32, "page_size": 4}
    limits |= {"max_chunk_tokens": 16, "block_q": 4}
    return engine(random_decoder(CONFIG, WEIGHTS), few_programs=True, **limits)


def prompt(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(5, CONFIG.vocab_size, length).tolist()


def check(output: RequestOutput, params: SamplingParams) -> None:
    """Each token is the most likely one as adjusted, and what is told of it is of the raw distribution."""
    [answer] = output.outputs
    prompt_ids, token_ids = list(output.prompt_token_ids), answer.token_ids
    logits = decoder_logits(CONFIG, WEIGHTS, prompt_ids + token_ids)
    before = len(prompt_ids) - 1
    for i, token_id in enumerate(token_ids):
        request = Request("as it was", prompt_ids, params, frozenset(), 99, 0, output_token_ids=token_ids[:i])
        moved = adjusted(logits[before + i], request)
        assert moved[token_id] > moved.max() - CLOSE, (i, token_id, int(moved.argmax()))
    if params.logprobs is not None:
        assert answer.logprobs is not None
        for i, told in enumerate(answer.logprobs):
            check_told(told, logits[before + i], token_ids[i], params.logprobs)
    if params.prompt_logprobs is not None:
        assert output.prompt_logprobs is not None
        first, *others = output.prompt_logprobs
        assert first is None
        assert len(others) == before
        for i, told in enumerate(others):
            assert told is not None
            check_told(told, logits[i], prompt_ids[i + 1], params.prompt_logprobs)


def check_told(told: dict[int, Logprob], logits: np.ndarray, token_id: int, num_top: int) -> None:
    """The token itself and the most likely ones, by their ids; those so near each other that rounding decides may
    change places."""
    expected = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    assert token_id in told
    assert num_top <= len(told) <= num_top + 1
    for each, logprob in told.items():
        assert logprob.logprob == pytest.approx(expected[each], abs=CLOSE)
        higher = np.count_nonzero(logits > logits[each] + CLOSE)
        assert higher < logprob.rank <= 1 + np.count_nonzero(logits > logits[each] - CLOSE)
    assert {logprob.rank for logprob in told.values()} >= set(range(1, num_top + 1))


REQUESTS = {
    "greedy": greedy(30),
    "penalties": greedy(30, **PENALTIES, logprobs=20),
    "bias": greedy(30, logit_bias=BIAS, logprobs=0),
    "all": greedy(30, **PENALTIES, logit_bias=BIAS, logprobs=3, prompt_logprobs=20),
    "prompt": greedy(30, prompt_logprobs=0),
    "frequency": greedy(30, frequency_penalty=-0.3, logprobs=1),
    "repetition": greedy(30, repetition_penalty=0.8),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_alone_is_drawn_and_told_as_defined(serving, name):
    check(run_alone(serving, prompt(1, 45), REQUESTS[name]), REQUESTS[name])


def test_requests_of_every_kind_together_are_too_though_they_are_preempted(serving):
    """Each kind with a prompt of its own and with one that begins as the others do."""
    shared, asked = prompt(2, 24), {}
    for i, (name, params) in enumerate(REQUESTS.items()):
        for kind, token_ids in ((" own", prompt(10 + i, 12 + i)), (" shared", shared + prompt(20 + i, 9))):
            asked[name + kind] = params
            serving.add_request(name + kind, token_ids, params)
    outputs = finish(serving)
    for name, params in asked.items():
        check(outputs[name], params)
    preempted = [name for name, output in outputs.items() if output.metrics.num_preemptions]
    assert any("penalties" in name or "all" in name for name in preempted), "the slots were never set anew"
    assert any("prompt" in name or "all" in name for name in preempted), "no prompt was scored again"
    assert any(output.usage.cached_tokens for output in outputs.values()), "no prefix was shared"
    assert not any(outputs[name].usage.cached_tokens for name in asked if "all" in name or "prompt" in name)


def test_a_prefix_that_is_found_in_the_cache_counts_for_the_repetition_penalty(serving):
    params = greedy(20, repetition_penalty=2.0)
    for _ in range(2):
        output = run_alone(serving, prompt(3, 40), params)
        check(output, params)
    assert output.usage.cached_tokens >= 32


def test_a_prompt_is_scored_though_no_token_is_drawn(serving):
    """In pieces of at most 16 tokens; and one of a single token, which has nothing to tell."""
    for length in (1, 2, 15, 16, 17, 80):
        params = greedy(0, prompt_logprobs=5)
        check(run_alone(serving, prompt(length, length), params), params)


def test_pieces_of_several_prompts_in_one_step_are_scored_apart(serving):
    """3, 7 and 11 tokens in blocks of 4: the first step has all of two prompts and 4 tokens of the last.

    The one in the middle is not scored.
    """
    asked = {"a": greedy(3, prompt_logprobs=2), "b": greedy(3), "c": greedy(3, prompt_logprobs=0)}
    for i, (name, params) in enumerate(asked.items()):
        serving.add_request(name, prompt(40 + i, 3 + 4 * i), params)
    outputs = finish(serving)
    for name, params in asked.items():
        check(outputs[name], params)


def test_a_seed_draws_the_same_with_and_without_log_probabilities(serving):
    params = SamplingParams(temperature=1.3, seed=5, max_tokens=20, **PENALTIES)
    told = replace(params, logprobs=20, prompt_logprobs=20)
    first, second = (run_alone(serving, prompt(4, 20), each).outputs[0] for each in (params, told))
    assert first.token_ids == second.token_ids
    assert first.logprobs is None
    assert len(second.logprobs or ()) == 20


def test_log_probabilities_add_up_to_that_of_the_answer(serving):
    [answer] = run_alone(serving, prompt(5, 10), greedy(9, logprobs=0)).outputs
    of_each = [told[token].logprob for told, token in zip(answer.logprobs, answer.token_ids, strict=True)]
    assert answer.cumulative_logprob == pytest.approx(sum(of_each))
    assert jnp.isfinite(answer.cumulative_logprob)
