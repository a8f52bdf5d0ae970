"""What a caller may ask for: every bad value is refused by name, range and a short form of it, and good ones stay."""

import pickle
import re
from dataclasses import fields, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from jaxinfer import sampling_params
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.structured_outputs.params import StructuredOutputsParams

HUGE = 10**5000  # more digits than Python writes
NUMBERS = {
    "temperature": (0, 3.4e38, "[0, 3.4e38]"),
    "top_p": (1e-9, 1, "(0, 1]"),
    "min_p": (0, 1, "[0, 1]"),
    "presence_penalty": (-2, 2, "[-2, 2]"),
    "frequency_penalty": (-2, 2, "[-2, 2]"),
    "repetition_penalty": (0.01, 100, "[0.01, 100]"),
}
WHOLE_NUMBERS = {
    "top_k": (-1, None, ">= -1"),
    "seed": (0, 2**64 - 1, "[0, 2**64)"),
    "logprobs": (0, 20, "[0, 20]"),
    "prompt_logprobs": (0, 20, "[0, 20]"),
    "max_tokens": (0, None, ">= 0"),
    "min_tokens": (0, None, ">= 0"),
    "n": (1, 1024, "[1, 1024]"),
    "best_of": (1, 1024, "from n, which is 1, to 1024"),
}
MAY_BE_NONE = {"seed", "logprobs", "prompt_logprobs", "max_tokens", "best_of"}


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def refusal(**arguments: Any) -> str:
    with pytest.raises(ValueError) as caught:
        SamplingParams(**arguments)
    message = str(caught.value)
    assert len(message) < 300
    return message


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_have_their_range_and_nothing_else_is_one(name: str) -> None:
    low, high, allowed = NUMBERS[name]
    for good in (low, high, np.float32(0.5), np.int64(1), Fraction(1, 2)):
        value = getattr(SamplingParams(**{name: good}), name)
        assert (type(value), value) == (float, float(good))
    bad = [low - 0.5, high * 1.1, float("nan"), float("inf"), -float("inf"), np.float32("nan"), HUGE, -HUGE]
    for value in [*bad, True, np.True_, "0.5", b"1", None, 1j, [0.5], np.array(0.5), Unshowable(), "x" * 10_000]:
        message = refusal(**{name: value})
        assert message.startswith(f"{name} is ")
        assert allowed in message


@pytest.mark.parametrize("name", WHOLE_NUMBERS)
def test_whole_numbers_have_their_range_and_nothing_else_is_one(name: str) -> None:
    low, high, allowed = WHOLE_NUMBERS[name]
    best = 10**30 if high is None else high
    for good in (low, np.int32(5), np.uint8(5), best):
        value = getattr(SamplingParams(**{"max_tokens": None, name: good}), name)
        assert (type(value), value) == (int, int(good))
    bad = [low - 1, -HUGE, 1.0, np.float32(1), float("nan"), True, np.True_, "1", [1], np.array(1), Unshowable()]
    bad += [] if high is None else [high + 1, HUGE]
    bad += [] if name in MAY_BE_NONE else [None]
    for value in bad:
        message = refusal(**{name: value})
        assert message.startswith(f"{name} is ")
        assert allowed in message


@pytest.mark.parametrize("name", ["ignore_eos", "include_stop_str_in_output"])
def test_a_switch_is_on_or_off(name: str) -> None:
    for value in (1, 0, None, "yes", [], Unshowable()):
        assert re.fullmatch(f"{name} is .*; it must be True or False", refusal(**{name: value}))


@pytest.mark.parametrize("name", ["stop", "bad_words"])
def test_texts(name: str) -> None:
    assert getattr(SamplingParams(**{name: ["a", "b\u00e9"]}), name) == ("a", "b\u00e9")
    assert getattr(SamplingParams(**{name: (word for word in "xy")}), name) == ("x", "y")
    assert getattr(SamplingParams(**{name: None}), name) == ()
    for value in (5, b"x", {"a": 1}, Unshowable(), np.array("x")):
        assert refusal(**{name: value}).startswith(f"{name} is ")
    for item in ("", None, 5, b"x", ["x"], Unshowable()):
        assert refusal(**{name: ["good", item]}).startswith(f"{name} has ")
    for text in ("\ud800", "a\udfff" + "x" * 10_000):
        assert "half of a surrogate pair" in refusal(**{name: [text]})


@pytest.mark.parametrize("name", ["stop", "bad_words"])
def test_a_single_text_needs_no_list(name: str) -> None:
    assert SamplingParams(**{name: "ab"}) == SamplingParams(**{name: ["ab"]})
    assert refusal(**{name: ""}).startswith(f"{name} has ''")


@pytest.mark.parametrize("name", ["stop", "bad_words"])
def test_texts_have_bounds_in_number_and_in_all_their_characters(name: str) -> None:
    for most in (["x"] * 1000, "x" * 16_384, ["ab" * 64] * 128):
        SamplingParams(**{name: most})
    assert refusal(**{name: ["x"] * 1001}) == f"{name} has 1001 texts; it must have at most 1000"
    for more in ("x" * 16_385, ["ab" * 64] * 128 + ["x"]):
        message = f"{name} has 16385 characters in all; it must have at most 16384"
        assert refusal(**{name: more}) == message


@pytest.mark.parametrize("name", ["stop_token_ids", "allowed_token_ids"])
def test_token_ids(name: str) -> None:
    for good in ([3, 5], (3, 5), np.array([3, 5]), iter([3, 5]), range(3, 6, 2), [np.int16(3), 5]):
        value = getattr(SamplingParams(**{name: good}), name)
        assert value == (3, 5)
        assert all(type(token_id) is int for token_id in value)
    for value in ("35", b"35", 5, {3: 5}, np.array(5), Unshowable()):
        assert refusal(**{name: value}).startswith(f"{name} is ")
    for item in (-1, -HUGE, 1.0, True, "3", None, [3], np.array([3])):
        assert refusal(**{name: [7, item]}).startswith(f"{name}[...] is ")


def test_none_is_as_if_it_were_not_said() -> None:
    nothing = dict.fromkeys(["stop", "stop_token_ids", "bad_words", "logit_bias", "allowed_token_ids"])
    assert SamplingParams(**nothing, structured_outputs=None, best_of=None) == SamplingParams()
    assert refusal(allowed_token_ids=[]).startswith("allowed_token_ids is empty")


def test_a_bias_is_a_number_for_each_token() -> None:
    bias = {5: -100, np.int64(3): np.float32(0.5)}
    params = SamplingParams(logit_bias=MappingProxyType(bias))
    bias[5] = 7
    assert params.logit_bias == {5: -100.0, 3: 0.5}
    for value in ([5], "5", 5, Unshowable()):
        assert refusal(logit_bias=value).startswith("logit_bias is ")
    for token_id in ("5", -1, True, 1.5, None, -HUGE):
        assert refusal(logit_bias={token_id: 1}).startswith("a key of logit_bias is ")
    for number in (100.5, -101, float("nan"), float("inf"), True, "1", None, HUGE):
        message = refusal(logit_bias={5: number})
        assert message.startswith("logit_bias[5] is ")
        assert "[-100, 100]" in message
    refusal(logit_bias={HUGE: 101})


def test_nothing_is_worded_before_something_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """To word what a check would say of each of 100,000 values costs far more than to check them."""
    worded: list[object] = []
    monkeypatch.setattr(sampling_params, "shown", lambda value: worded.append(value) or "it")
    SamplingParams(logit_bias=dict.fromkeys(range(100), 1.5), allowed_token_ids=range(100), stop_token_ids=[5])
    assert worded == []
    assert refusal(logit_bias={1: 1, 5: 101}).startswith("logit_bias[it] is 101")


def test_what_contradicts_itself_is_refused_with_both_numbers() -> None:
    assert refusal(min_tokens=5, max_tokens=4) == "min_tokens is 5, above max_tokens, which is 4"
    message = "min_tokens is a int that cannot be written, above max_tokens, which is 4"
    assert refusal(min_tokens=HUGE, max_tokens=4) == message
    assert refusal(n=3, best_of=2) == "best_of is 2; it must be a whole number from n, which is 3, to 1024, or None"
    assert SamplingParams(n=3, best_of=3).num_sequences == 3
    assert SamplingParams(n=3).num_sequences == 3
    assert SamplingParams(n=2, best_of=5).num_sequences == 5


def test_the_form_of_the_answer_is_one_and_of_its_type() -> None:
    form = StructuredOutputsParams(regex="a+")
    assert SamplingParams(structured_outputs=form).structured_outputs is form
    for value in ({"regex": "a"}, "a", 5):
        assert refusal(structured_outputs=value).startswith("structured_outputs is ")
    for arguments in (
        {},
        {"regex": "a", "choice": ["a"]},
        {"json": 0, "regex": "a"},
        {"regex": 5},
        {"grammar": b"x"},
        {"json": [1]},
        {"json_object": 1},
        {"choice": "ab"},
        {"choice": []},
        {"choice": ["a", ""]},
        {"choice": ["a", 5]},
        {"regex": Unshowable()},
    ):
        with pytest.raises(ValueError, match=r"; it must (be|have exactly one of json, json_object)"):
            StructuredOutputsParams(**arguments)


EVERYTHING = SamplingParams(
    **{name: low for name, (low, _, _) in (NUMBERS | WHOLE_NUMBERS).items()},
    stop="x",
    bad_words=["y"],
    stop_token_ids=[1],
    allowed_token_ids=[2],
    logit_bias={3: 1},
    structured_outputs=StructuredOutputsParams(json={"type": "object"}),
)


def test_equal_ones_are_equal_and_can_be_keys() -> None:
    same = replace(EVERYTHING)
    assert same == EVERYTHING
    assert hash(same) == hash(EVERYTHING)
    assert len({EVERYTHING, same, SamplingParams(), SamplingParams(temperature=1)}) == 2
    assert replace(EVERYTHING, logit_bias={3: 2}) != EVERYTHING
    assert pickle.loads(pickle.dumps(EVERYTHING)) == EVERYTHING


def test_what_it_shows_makes_an_equal_one() -> None:
    names = {"SamplingParams": SamplingParams, "StructuredOutputsParams": StructuredOutputsParams}
    assert eval(repr(EVERYTHING), names) == EVERYTHING


def test_a_changed_copy_is_checked_again() -> None:
    assert replace(EVERYTHING, temperature=0.5).temperature == 0.5
    with pytest.raises(ValueError, match="top_p is 2"):
        replace(EVERYTHING, top_p=2)
    with pytest.raises(AttributeError):
        EVERYTHING.temperature = 2  # type: ignore[misc]


def test_all_that_can_be_said_is_tested_here() -> None:
    others = {"stop", "bad_words", "stop_token_ids", "allowed_token_ids", "logit_bias", "structured_outputs"}
    others |= {"ignore_eos", "include_stop_str_in_output"}
    assert {field.name for field in fields(SamplingParams)} == others | NUMBERS.keys() | WHOLE_NUMBERS.keys()


def test_what_costs_more_is_known_beforehand() -> None:
    assert not SamplingParams().adjusts_logits
    assert not SamplingParams(logit_bias={}).adjusts_logits
    for adjusting in (
        {"presence_penalty": 1},
        {"frequency_penalty": -1},
        {"repetition_penalty": 2},
        {"logit_bias": {1: 1}},
    ):
        assert SamplingParams(**adjusting).adjusts_logits
    assert not SamplingParams(n=3).wants_logprobs
    assert not SamplingParams(n=3, best_of=3).wants_logprobs
    assert SamplingParams(logprobs=0).wants_logprobs
    assert SamplingParams(n=3, best_of=4).wants_logprobs
