"""A request's answer depends on the request alone: whatever it asks for, whatever else runs, in whatever order.

The model is real, random and small, in float32, and writes bytes. Alone means: in an engine of its own, with an empty
cache.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from jaxinfer.engine import Engine
from jaxinfer.outputs import CompletionOutput, RequestOutput
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.structured_outputs.params import StructuredOutputsParams
from tests.engines import finish
from tests.jaxinfer.tool_calls.vocabulary import byte_tokenizer
from tests.shared_runner import SharedRunner, shared_runner

TOKENIZER = byte_tokenizer()
EOS = TOKENIZER.token_id("</s>")
BYTES = range(256)
PAGE = 4
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yy"]}},
    "required": ["a", "b"],
}


@dataclass(eq=False)
class Told:
    """Log-probabilities, which depend a little on the size of the batch."""

    logprobs: list[float]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Told) or len(self.logprobs) != len(other.logprobs):
            return False
        return np.allclose(self.logprobs, other.logprobs, rtol=0, atol=1e-4)

    @classmethod
    def of(cls, completion: CompletionOutput) -> "Told":
        """Of each token, and of the most likely ones in their order, of whose ids rounding may decide."""
        found = [] if completion.cumulative_logprob is None else [completion.cumulative_logprob]
        for entry in completion.logprobs or ():
            own, *likely = [each.logprob for each in entry.values()]
            found += [own, *sorted(likely, reverse=True)]
        return cls(found)


type Requests = Mapping[str, tuple[list[int], SamplingParams]]
type Answer = list[tuple[list[int], str, str | None, int | str | None, Told]]


@pytest.fixture(scope="module")
def runner() -> SharedRunner:
    return shared_runner(
        (None,),
        vocab_size=TOKENIZER.vocab_size,
        only_draws=False,
        max_model_len=96,
        page_size=PAGE,
        num_kv_pages=400,
        max_num_seqs=8,
        max_chunk_tokens=32,
    )


def an_engine(runner: SharedRunner, **changes: Any) -> Engine:
    return runner.engine(tokenizer=TOKENIZER, eos_token_ids=[EOS], **changes)


def answer(output: RequestOutput) -> Answer:
    assert output.error is None
    return [(one.token_ids, one.text, one.finish_reason, one.stop_reason, Told.of(one)) for one in output.outputs]


def alone(runner: SharedRunner, requests: Requests) -> dict[str, Answer]:
    answers = {}
    for name, (prompt, params) in requests.items():
        engine = an_engine(runner)
        engine.add_request(name, prompt, params)
        answers[name] = answer(finish(engine)[name])
    return answers


def together(engine: Engine, requests: Requests, rng: random.Random | None = None) -> dict[str, Answer]:
    """Their answers in one engine: all at once, or at any time in any order."""
    names, outputs = list(requests), {}
    if rng is not None:
        rng.shuffle(names)
    for name in names:
        engine.add_request(name, *requests[name])
        for _ in range(0 if rng is None else rng.randint(0, 3)):
            outputs |= {output.request_id: output for output in engine.step() if output.finished}
    outputs |= finish(engine)
    assert engine.scheduler.num_free_pages == engine._config.group_pages
    return {name: answer(outputs[name]) for name in requests}


def random_form(rng: random.Random) -> StructuredOutputsParams:
    return rng.choice(
        [
            StructuredOutputsParams(regex="[a-z]{3,20}[0-9]+"),
            StructuredOutputsParams(choice=["north", "north-east", "south"]),
            StructuredOutputsParams(json=SCHEMA),
            StructuredOutputsParams(grammar='start: "(" start ")" | "x"'),
        ]
    )


def random_params(rng: random.Random, seed: int) -> SamplingParams:
    """Any parameters together; each about every third time."""
    asked: dict[str, Any] = {
        "top_k": rng.choice([1, 5, 50]),
        "top_p": rng.choice([0.5, 0.9]),
        "min_p": 0.05,
        "presence_penalty": rng.uniform(-2, 2),
        "frequency_penalty": rng.uniform(-2, 2),
        "repetition_penalty": rng.uniform(0.5, 2),
        "logit_bias": {rng.randrange(256): rng.uniform(-5, 5) for _ in range(20)},
        "min_tokens": rng.randint(1, 10),
        "stop_token_ids": rng.sample(BYTES, 3),
        "stop": [chr(rng.randrange(97, 123)) for _ in range(3)],
        "bad_words": [chr(rng.randrange(97, 123)) + chr(rng.randrange(97, 123)), "e"],
        "allowed_token_ids": [*rng.sample(BYTES, 200), EOS],
        "n": rng.randint(2, 3),
        "logprobs": rng.randint(0, 20),
    }
    chosen = {name: value for name, value in asked.items() if rng.random() < 0.3}
    if rng.random() < 0.25:
        chosen["structured_outputs"] = random_form(rng)
        chosen.pop("allowed_token_ids", None)  # which might leave no way to go on
        chosen.pop("bad_words", None)
    temperature = rng.choice([0, 0.5, 1, 1.5])
    return SamplingParams(temperature=temperature, seed=seed, max_tokens=rng.randint(20, 44), **chosen)


def random_requests(rng: random.Random, num_requests: int) -> Requests:
    """Some prompts begin alike."""
    beginnings = [[rng.choice(BYTES) for _ in range(24)] for _ in range(2)]
    return {
        f"request {i}": (
            rng.choice(beginnings)[: rng.choice([0, 11, 24])] + [rng.choice(BYTES) for _ in range(rng.randint(1, 24))],
            random_params(rng, rng.choice([i, 2**64 - 1 - i])),
        )
        for i in range(num_requests)
    }


def test_a_constrained_a_seeded_a_penalised_and_a_greedy_request_in_one_batch(runner: SharedRunner) -> None:
    prompt, form = TOKENIZER.encode("Say it:"), StructuredOutputsParams(regex="[a-z]{20,30}[0-9]+")
    requests = {
        "constrained": (
            prompt,
            SamplingParams(max_tokens=40, seed=1, structured_outputs=form),
        ),
        "seeded": (prompt, SamplingParams(max_tokens=40, seed=2, top_p=0.9)),
        "penalised": (prompt, SamplingParams(max_tokens=40, temperature=0, frequency_penalty=1.5)),
        "greedy": (prompt, SamplingParams(max_tokens=40, temperature=0)),
    }
    expected = alone(runner, requests)
    engine = an_engine(runner)
    assert together(engine, requests) == expected
    assert sum(set(batch) == set(requests) for batch in engine._runner.batches) > 5, "they share their steps"
    assert len({tuple(answer[0][0]) for answer in expected.values()}) == 4, "no two of them are the same"


@pytest.mark.parametrize(("seed", "num_requests"), [(0, 10), pytest.param(1, 50, marks=pytest.mark.slow)])
def test_requests_of_any_parameters_get_what_each_gets_alone(
    runner: SharedRunner, seed: int, num_requests: int
) -> None:
    rng = random.Random(seed)
    requests = random_requests(rng, num_requests)
    expected = alone(runner, requests)

    assert together(an_engine(runner), requests) == expected
    engine = an_engine(runner)
    assert together(engine, requests, rng) == expected
    # A second time: now whole prompts are known.
    num_cached = engine.scheduler.counters.num_cached_tokens
    assert together(engine, requests, rng) == expected
    assert engine.scheduler.counters.num_cached_tokens - num_cached > 8 * num_requests
    assert together(an_engine(runner, prefix_cache=False), requests, rng) == expected
    small = an_engine(runner, num_kv_pages=26)
    assert together(small, requests) == expected
    assert small.scheduler.counters.num_resumptions > 0
    assert together(an_engine(runner, max_num_seqs=2), requests, rng) == expected


def test_another_seed_gives_another_answer(runner: SharedRunner) -> None:
    requests = {str(seed): ([5, 6, 7], SamplingParams(max_tokens=20, seed=seed)) for seed in (0, 1, 2**32, 2**63)}
    assert len({tuple(answer[0][0]) for answer in together(an_engine(runner), requests).values()}) == 4
