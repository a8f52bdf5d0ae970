"""The whole road with a real model: a request's answer depends on the request alone, and no step compiles."""

import random
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from jaxinfer.engine import Engine
from jaxinfer.sampling_params import SamplingParams
from tests.engines import TINY_MISTRAL, decoder, engine, finish, greedy, record_greedy, run_alone
from tests.reference import load_reference
from tests.scoring import log_softmax, prefill_logits

NUM_PAGES = 64


@pytest.fixture(scope="module")
def shared_engine() -> Engine:
    """More requests than slots and more work than pages: 8 slots, 64 pages of 8 tokens."""
    return engine(decoder(TINY_MISTRAL), max_num_seqs=8, max_chunk_tokens=32, num_kv_pages=NUM_PAGES)


@pytest.fixture
def idle_engine(shared_engine: Engine) -> Iterator[Engine]:
    """The engine with nothing in it; after the test no request may hold a page."""
    assert not shared_engine.has_unfinished
    yield shared_engine
    assert not shared_engine.has_unfinished
    assert shared_engine.scheduler.num_free_pages == (NUM_PAGES,)


def random_prompt(rng: random.Random, longest: int) -> list[int]:
    return [rng.randrange(128) for _ in range(rng.randint(1, longest))]


def test_64_requests_arriving_at_different_times_get_what_each_gets_alone(idle_engine: Engine) -> None:
    rng = random.Random(1)
    requests = {str(i): (random_prompt(rng, 90), greedy(rng.randint(1, 30))) for i in range(64)}
    outputs = {}
    for name, (prompt, params) in requests.items():
        idle_engine.add_request(name, prompt, params)
        for _ in range(rng.randint(0, 4)):
            outputs |= {output.request_id: output for output in idle_engine.step() if output.finished}
    outputs |= finish(idle_engine)
    for name, (prompt, params) in requests.items():
        idle_engine.scheduler.forget_prefixes()  # or it would read what it wrote when it was not alone
        alone = run_alone(idle_engine, prompt, params)
        assert outputs[name].outputs[0].token_ids == alone.outputs[0].token_ids, f"request {name}"


def test_the_same_prompt_four_times_gives_the_same_answer_four_times(idle_engine: Engine) -> None:
    prompt = load_reference("tiny_mistral").arrays["token_ids"].tolist()
    for i in range(4):
        idle_engine.add_request(str(i), prompt, greedy(30))
    answers = [output.outputs[0].token_ids for output in finish(idle_engine).values()]
    assert answers == [answers[0]] * 4


def test_a_seed_gives_the_same_tokens_whatever_else_runs(idle_engine: Engine) -> None:
    rng = random.Random(2)
    prompt, params = [5, 6, 7], SamplingParams(seed=2**63 + 5, max_tokens=20, top_k=40, top_p=0.95)
    alone = run_alone(idle_engine, prompt, params).outputs[0].token_ids
    for i in range(10):
        others = SamplingParams(temperature=rng.choice([0, 1.5]), max_tokens=rng.randint(1, 25), seed=i)
        idle_engine.add_request(f"other {i}", random_prompt(rng, 60), others)
        idle_engine.step()
    idle_engine.add_request("seeded", prompt, params)
    assert finish(idle_engine)["seeded"].outputs[0].token_ids == alone
    other_seed = SamplingParams(seed=5, max_tokens=20, top_k=40, top_p=0.95)  # the low half is the same
    assert run_alone(idle_engine, prompt, other_seed).outputs[0].token_ids != alone


def test_requests_without_a_seed_differ_and_an_engines_seed_repeats_them() -> None:
    def two_answers(fresh: Engine) -> list[list[int]]:
        params = SamplingParams(max_tokens=12)
        return [run_alone(fresh, [1, 2, 3], params).outputs[0].token_ids for _ in range(2)]

    one = engine(decoder(TINY_MISTRAL), few_programs=True, max_num_seqs=1, max_chunk_tokens=16, seed=3)
    another = Engine(one._runner, one._config, tokenizer=None, eos_token_ids=())
    first, second = two_answers(one)
    assert first != second
    assert two_answers(another) == [first, second]


def test_min_tokens_forbids_eos_until_then(shared_engine: Engine) -> None:
    """EOS is the token that greedy decoding writes first; forbidden for five tokens, it may come as the sixth."""
    tiny = decoder(TINY_MISTRAL)
    prompt = load_reference("tiny_mistral").arrays["token_ids"].tolist()
    eos = run_alone(shared_engine, prompt, greedy(1)).outputs[0].token_ids[0]
    stopping = engine(tiny, eos_token_ids=[eos], few_programs=True, max_num_seqs=1, max_chunk_tokens=16)
    assert run_alone(stopping, prompt, greedy(10)).outputs[0].token_ids == [eos]
    delayed = run_alone(stopping, prompt, greedy(10, min_tokens=5)).outputs[0]
    assert eos not in delayed.token_ids[:5]
    logits = prefill_logits(tiny, np.array(prompt + delayed.token_ids[:4]), chunk=50)[len(prompt) - 1 :]
    logits[:, eos] = -np.inf
    assert delayed.token_ids[:5] == logits.argmax(axis=1).tolist()


@pytest.mark.parametrize(("max_chunk_tokens", "block_q"), [(1, 1), (5, 5), (64, 16)])
def test_decoding_equals_prefill_in_chunks_of_any_size(
    idle_engine: Engine, max_chunk_tokens: int, block_q: int
) -> None:
    """Token by token, the whole prompt at once and pieces of it: the same greedy ids, log-probabilities within 1e-4."""
    tiny = decoder(TINY_MISTRAL)
    prompt = load_reference("tiny_mistral").arrays["token_ids"].tolist()[:3]
    decoded, logits = record_greedy(idle_engine, prompt, 60)
    log_probabilities = log_softmax(logits)
    whole = np.array(prompt + decoded[:-1])
    chunked = log_softmax(prefill_logits(tiny, whole, chunk=max_chunk_tokens)[len(prompt) - 1 :])
    assert np.abs(chunked - log_probabilities).max() < 1e-4
    assert chunked.argmax(axis=1).tolist() == decoded

    small = engine(tiny, few_programs=True, max_num_seqs=1, max_chunk_tokens=max_chunk_tokens, block_q=block_q)
    after_chunks, logits = record_greedy(small, [*prompt, *decoded[:40]], 20)
    assert after_chunks == decoded[40:]
    assert np.abs(log_softmax(logits) - log_probabilities[40:]).max() < 1e-4


@pytest.mark.parametrize(("max_model_len", "page_size"), [(37, 16), (33, 5)])
def test_a_sequence_may_end_in_the_middle_of_its_last_page(max_model_len: int, page_size: int) -> None:
    """Decoding goes on to the last position of the model's length, from near the start and from just before it."""
    tiny = decoder(TINY_MISTRAL)
    num_pages = -(-max_model_len // page_size)
    small = engine(
        tiny,
        max_model_len=max_model_len,
        page_size=page_size,
        num_kv_pages=num_pages,
        few_programs=True,
        max_num_seqs=1,
        max_chunk_tokens=16,
    )
    text = load_reference("tiny_mistral").arrays["token_ids"].tolist()
    for num_prompt in (3, max_model_len - 1):
        answer = run_alone(small, text[:num_prompt], greedy(99)).outputs[0]
        assert (len(answer.token_ids), answer.finish_reason) == (max_model_len - num_prompt, "length")
        whole = np.array(text[:num_prompt] + answer.token_ids[:-1])
        expected = prefill_logits(tiny, whole, chunk=len(whole))[num_prompt - 1 :].argmax(axis=1)
        assert answer.token_ids == expected.tolist()


def test_a_mixed_load_of_200_requests_compiles_nothing(idle_engine: Engine) -> None:
    compiled: list[str] = []

    def listen(event: str, duration: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        rng = random.Random(4)
        for i in range(200):
            max_tokens = rng.randint(0, 12)
            params = SamplingParams(
                temperature=rng.choice([0, 0.5, 1]),
                top_k=rng.choice([0, 10]),
                top_p=rng.choice([1, 0.8]),
                min_p=rng.choice([0, 0.1]),
                max_tokens=max_tokens,
                min_tokens=rng.choice([0, max_tokens // 2]),
                stop_token_ids=rng.choice([(), (3, 4)]),
            )
            idle_engine.add_request(str(i), random_prompt(rng, 100), params)
            if i % 3 == 0:
                idle_engine.step()
            if i % 20 == 0:
                idle_engine.abort(str(rng.randrange(i + 1)))
        finish(idle_engine)
        assert compiled == []
        jax.jit(lambda x: x * 3 + len(compiled))(np.zeros(3))
        assert compiled, "the listener hears a compile when there is one"
    finally:
        jax.monitoring.clear_event_listeners()
