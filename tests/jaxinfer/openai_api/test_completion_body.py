"""From the body of a completion to prompts and parameters, and how what is wrong with it is told."""

import time
from typing import Any

import pytest
from pydantic import ValidationError

from jaxinfer.openai_api.completion_body import CompletionBody
from jaxinfer.openai_api.errors import ApiError
from jaxinfer.openai_api.field_errors import invalid_field
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.structured_outputs.params import StructuredOutputsParams


def refusal(body: Any) -> ApiError:
    """The error that a body is refused with."""
    try:
        CompletionBody.model_validate(body).params()
    except ValidationError as error:
        return invalid_field(error.errors())
    except ApiError as error:
        return error
    raise AssertionError("it was taken")


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", [{"prompt": "a"}]),
        (["a", "b"], [{"prompt": "a"}, {"prompt": "b"}]),
        ([0, 1], [{"prompt_token_ids": [0, 1]}]),
        ([[0], [1, 2]], [{"prompt_token_ids": [0]}, {"prompt_token_ids": [1, 2]}]),
    ],
)
def test_one_prompt_or_several(prompt: Any, prompts: list[dict[str, Any]]) -> None:
    salted = [given | {"cache_salt": "s"} for given in prompts]
    assert CompletionBody(prompt=prompt, cache_salt="s").prompts() == salted


def test_what_is_left_out_or_null_is_the_default() -> None:
    bare = CompletionBody(prompt="a")
    null = CompletionBody(prompt="a", **{name: None for name in CompletionBody.model_fields if name != "prompt"})
    assert bare.params() == null.params() == SamplingParams(max_tokens=16)


def test_every_field_that_draws_or_stops_reaches_the_engine() -> None:
    same: dict[str, Any] = {
        "n": 2,
        "best_of": 3,
        "temperature": 0.5,
        "top_p": 0.5,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "seed": 7,
        "stop": ["x"],
        "max_tokens": 9,
        "top_k": 4,
        "min_p": 0.125,
        "repetition_penalty": 1.5,
        "min_tokens": 1,
        "ignore_eos": True,
        "include_stop_str_in_output": True,
        "stop_token_ids": [5],
        "bad_words": ["y"],
        "allowed_token_ids": [1, 2],
        "logprobs": 3,
    }
    body = CompletionBody(prompt="a", **same, logit_bias={"3": -1.5}, structured_outputs={"regex": "z"})
    form = StructuredOutputsParams(regex="z")
    assert body.params() == SamplingParams(**same, logit_bias={3: -1.5}, structured_outputs=form)
    unread = {"logit_bias", "structured_outputs", "prompt_logprobs"}
    assert same.keys() | unread == SamplingParams.__dataclass_fields__.keys()


def test_log_probabilities_of_the_prompt_are_asked_for_where_it_is_told() -> None:
    assert CompletionBody(prompt="a", echo=True, logprobs=2).params().prompt_logprobs == 2
    assert CompletionBody(prompt="a", echo=True).params().prompt_logprobs is None
    assert CompletionBody(prompt="a", logprobs=2).params().prompt_logprobs is None


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"prompt": 3}, "prompt", "prompt is 3; it must be text, a list of texts, a list of token ids, or a list of"),
        ({"prompt": [1, "a"]}, "prompt", "prompt is [1, 'a']; it must be text"),
        ({"prompt": [True]}, "prompt", "prompt is [True]; it must be text"),
        ({"prompt": ["a", ""]}, "prompt", "prompt is ['a', '']; it must not be empty"),
        ({"prompt": [[1], []]}, "prompt", "prompt is [[1], []]; it must not be empty"),
        ({"n": 1.5}, "n", "n is 1.5; it must be a valid integer"),
        ({"n": "2"}, "n", "n is '2'; it must be a valid integer"),
        ({"n": True}, "n", "n is True; it must be a valid integer"),
        ({"n": 0}, "n", "n is 0; it must be a whole number in [1, 1024]"),
        ({"stop": [1]}, "stop", "stop is [1]; it must be text or a list of texts"),
        ({"stop_token_ids": [1, "a"]}, "stop_token_ids", "stop_token_ids.1 is 'a'; it must be a valid integer"),
        ({"temperature": float("nan")}, "temperature", "temperature is nan; it must be a finite number"),
        ({"temperature": 10**400}, "temperature", "temperature is 1000"),
        ({"logit_bias": {"a": 1}}, "logit_bias", "a key of logit_bias is 'a'; it must be a token id"),
        ({"logit_bias": {"9" * 5000: 1}}, "logit_bias", "a key of logit_bias is '999"),
        ({"logit_bias": {"1": 101}}, "logit_bias", "logit_bias[1] is 101.0; it must be a number in"),
        ({"logprobs": 21}, "logprobs", "logprobs is 21; it must be less than or equal to 20"),
        ({"best_of": 1, "n": 2}, "best_of", "best_of is 1; it must be a whole number from n"),
        ({"stream_options": {"a": 1}}, "stream_options", "there is no field 'stream_options.a'"),
        ({"stream_options": 1}, "stream_options", "stream_options is 1; it must be an object"),
        ({"structured_outputs": {"a": 1}}, "structured_outputs", "structured_outputs has other fields than json"),
        ({"structured_outputs": {}}, "structured_outputs", "structured_outputs has nothing; it must have"),
        ({"x" * 5000: 1}, "x" * 100, "there is no field 'xxx"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str, message: str) -> None:
    error = refusal({"prompt": "a"} | fields)
    assert (error.status, error.detail.param) == (400, param)
    assert error.detail.message.startswith(message)
    assert len(error.detail.message) < 250


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "prompt is missing"),
        ([], "the body is []; it must be a JSON object"),
        ("a", "the body is 'a'; it must be a JSON object"),
        (None, "the body is None; it must be a JSON object"),
    ],
)
def test_what_is_no_body_is_told(body: Any, message: str) -> None:
    assert refusal(body).detail.message.startswith(message)


def test_a_million_faults_are_not_written_down() -> None:
    """pydantic would take seconds for each of these, in which nobody else is answered."""
    for fields in ({"prompt": [1.5] * 300_000}, {f"x{i}": 1 for i in range(300_000)}):
        began = time.process_time()
        refusal({"prompt": "a"} | fields)
        assert time.process_time() - began < 0.5


def test_a_seed_with_a_sign_is_one_of_64_bits() -> None:
    """OpenAI's seeds have a sign; a draw knows all 64 bits."""
    seeds = [CompletionBody(prompt="a", seed=seed).params().seed for seed in (-1, -(2**63), 2**64 - 1)]
    assert seeds == [2**64 - 1, 2**63, 2**64 - 1]
    with pytest.raises(ApiError, match="seed is"):
        CompletionBody(prompt="a", seed=-(2**63) - 1).params()
