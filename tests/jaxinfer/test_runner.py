"""Which programs a batch runs: each row of a real engine gets the kind of draw and the mask that it asked for."""

from collections import Counter
from collections.abc import Mapping

import pytest

from jaxinfer.engine import Engine
from jaxinfer.sampling_params import SamplingParams
from tests.engines import TINY_MISTRAL, decoder, engine, finish, greedy, run_alone

PROMPT = [5, 99, 17, 3]
NUM_TOKENS = 20


@pytest.fixture(scope="module")
def tiny() -> Engine:
    return engine(decoder(TINY_MISTRAL), max_num_seqs=8, max_chunk_tokens=16)


def answer(tiny: Engine, params: SamplingParams) -> list[int]:
    return run_alone(tiny, PROMPT, params).outputs[0].token_ids


def hot(seed: int = 1, **values) -> SamplingParams:
    """Nearly uniform over the 128 tokens, but for what the values leave."""
    return SamplingParams(temperature=5, seed=seed, max_tokens=NUM_TOKENS, **values)


@pytest.mark.parametrize("values", [{"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}, {"top_k": 2**70, "top_p": 1e-9}])
def test_a_draw_that_leaves_one_token_is_greedy(tiny, values):
    assert answer(tiny, hot(**values)) == answer(tiny, greedy(NUM_TOKENS))


def test_a_draw_that_leaves_all_tokens_is_not_greedy(tiny):
    matches = zip(answer(tiny, hot(top_k=2**70)), answer(tiny, greedy(NUM_TOKENS)), strict=True)
    assert sum(drawn == likely for drawn, likely in matches) < NUM_TOKENS / 2


def mixed_requests(tiny: Engine) -> Mapping[str, SamplingParams]:
    """One request of each kind; the stop tokens are some that it would draw at once."""
    first_greedy = answer(tiny, greedy(1))[0]
    return {
        "greedy": greedy(NUM_TOKENS),
        "plain": hot(seed=2),
        "min_p": hot(seed=3, min_p=0.5),
        "top_k": hot(seed=4, top_k=3),
        "top_p": hot(seed=5, top_p=0.3),
        "greedy min_tokens": greedy(NUM_TOKENS, min_tokens=10, stop_token_ids=[first_greedy]),
        "plain min_tokens": hot(seed=6, min_tokens=10, stop_token_ids=range(64)),
        "bias": greedy(NUM_TOKENS, logit_bias={first_greedy: -100.0}),
        "penalties": hot(seed=7, presence_penalty=2.0, repetition_penalty=1.5),
        "log-probabilities": hot(seed=8, top_k=9, logprobs=2, prompt_logprobs=1),
    }


@pytest.mark.parametrize("first", range(10))
def test_each_kind_of_request_gets_beside_all_others_what_it_gets_alone(tiny, first):
    """Whichever comes first: the choice of a program must look at every row."""
    requests = mixed_requests(tiny)
    names = [*requests][first:] + [*requests][:first]
    alone = {name: answer(tiny, params) for name, params in requests.items()}
    for name in names:
        tiny.add_request(name, PROMPT, requests[name])
    together = {name: output.outputs[0].token_ids for name, output in finish(tiny).items()}
    assert together == alone


@pytest.mark.parametrize("name", ["greedy min_tokens", "plain min_tokens"])
def test_no_stop_token_comes_before_min_tokens(tiny, name):
    params = mixed_requests(tiny)[name]
    token_ids = answer(tiny, params)
    assert len(token_ids) >= 10
    assert not set(token_ids[:10]) & set(params.stop_token_ids)
    unmasked = SamplingParams(**{**vars(params), "min_tokens": 0})
    assert len(answer(tiny, unmasked)) < 10, "a stop token comes early unless it is forbidden"


LAUNCHED_FOR = {
    "nothing": ({}, set()),
    "a bias": ({"logit_bias": {5: 1.0}}, {"adjust", "set_slot"}),
    "a penalty": ({"frequency_penalty": 0.5}, {"adjust", "set_slot"}),
    "log-probabilities": ({"logprobs": 0}, {"rank"}),
    "those of the prompt": ({"prompt_logprobs": 3}, {"pick", "score"}),
    "a mask": ({"allowed_token_ids": [5, 6, 7]}, {"forbid"}),
}


@pytest.fixture
def launched(tiny, monkeypatch) -> Counter[str]:
    """How often each kind of program runs."""
    programs, counts = tiny._runner.programs, Counter[str]()

    def counting(kind: str, program):
        def call(*arguments):
            counts[kind] += 1
            return program(*arguments)

        return call

    for kind in ("forward", "sample", "forbid", "adjust", "rank", "pick"):
        compiled = getattr(programs, kind)
        monkeypatch.setattr(programs, kind, {key: counting(kind, program) for key, program in compiled.items()})
    for kind in ("set_slot", "score"):
        monkeypatch.setattr(programs, kind, counting(kind, getattr(programs, kind)))
    return counts


@pytest.mark.parametrize("wish", LAUNCHED_FOR)
def test_a_step_launches_a_program_only_if_a_row_wants_what_it_does(tiny, launched, wish):
    params, others = LAUNCHED_FOR[wish]
    tiny.add_request("plain", PROMPT, greedy(NUM_TOKENS))
    tiny.add_request("wishing", PROMPT, greedy(4, **params))
    finish(tiny)
    assert set(launched) == {"forward", "sample"} | others
    assert launched["forward"] == launched["sample"] == NUM_TOKENS
    for kind in others & {"adjust", "rank", "forbid"}:
        assert launched[kind] == 4, "it ran in steps in which nobody wanted it"
    for kind in others & {"set_slot", "pick", "score"}:
        assert launched[kind] == 1
