"""How ``jaxinfer generate`` writes what the engine gives it."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from jaxinfer.cli.generate import stream_one
from jaxinfer.cli.progress import ProgressBar
from jaxinfer.cli.prompts import UserPrompt
from jaxinfer.cli.result_json import result_json
from jaxinfer.cli.results import OrderedResults, Result, ResultWriter, Totals, print_speed, print_totals
from jaxinfer.logprobs import Logprob
from jaxinfer.outputs import CompletionOutput, RequestMetrics, RequestOutput, Usage
from jaxinfer.sampling_params import SamplingParams
from tests.command_line import process

START, FIRST, END = 100.0, 100.5, 102.5
"""Times of a made-up request of five tokens: 0.5 s to the first, then 4 in 2 s."""


def output_of(text, *, delta="", num_tokens=5, error=None):
    """What the engine gives for a request of 3 prompt tokens, in the middle or at the end."""
    metrics = RequestMetrics(START, START, FIRST if num_tokens else None, END, num_tokens, num_preemptions=2)
    completion = CompletionOutput(0, text, [*range(num_tokens)], "error" if error else "length", delta)
    usage = Usage(prompt_tokens=3, completion_tokens=num_tokens, cached_tokens=1)
    metrics, usage = (None, None) if error else (metrics, usage)
    return RequestOutput("0", None, [7, 8, 9], [completion], True, metrics, usage, error=error)


def test_text_is_on_stdout_before_the_next_piece_is_there(capsys):
    def stream(prompts, params):
        assert prompts == ["Hello"]
        for text, delta in (("a", "a"), ("a b", " b"), ("a b", "")):
            yield output_of(text, delta=delta)
            assert capsys.readouterr() == (delta, "")

    llm = SimpleNamespace(tokenizer=object(), stream=stream)
    assert stream_one(llm, UserPrompt("Hello", "prompt 1"), "Hello", SamplingParams())
    expected = "3 prompt tokens (1 cached), 5 output tokens, first after 0.500 s, then 2.0 tokens per second\n"
    assert capsys.readouterr() == ("\n", expected)


STEERING = "\x1b]0;owned\x07 \x9b2J \r\x08\x00\x7f"
SPELLED = r"\x1b]0;owned\x07 \x9b2J \r\x08\x00\x7f"
HARMLESS = "a\tb\nc \u00e9 \u6f22\u3000\u200d\U0001f44d \u05d0\u200f"


@pytest.mark.parametrize(("at_terminal", "shown"), [(True, SPELLED), (False, STEERING)])
def test_text_steers_no_terminal_and_a_file_gets_it_as_it_is(at_terminal, shown, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: at_terminal)
    text = STEERING + HARMLESS

    def stream(prompts, params):
        yield output_of(text, delta=text)

    llm = SimpleNamespace(tokenizer=object(), stream=stream)
    assert stream_one(llm, UserPrompt("Hello", "prompt 1"), "Hello", SamplingParams())
    assert capsys.readouterr().out == f"{shown}{HARMLESS}\n"
    ResultWriter(as_json=False, as_ids=False).write(Result(UserPrompt("a\x1b[2J", "line 1 of x"), output_of(text)))
    title = "a\\x1b[2J" if at_terminal else "a\x1b[2J"
    assert capsys.readouterr().out == f"==> line 1 of x: {title}\n{shown}{HARMLESS}\n\n"


STREAM_ONE_AND_WAIT = """
import sys
from types import SimpleNamespace
from jaxinfer.cli.generate import stream_one
from jaxinfer.cli.prompts import UserPrompt

def stream(prompts, params):
    yield SimpleNamespace(outputs=[SimpleNamespace(delta="a")], error=None)
    sys.stdin.read()
    sys.exit()

stream_one(SimpleNamespace(stream=stream), UserPrompt("Hello", "prompt 1"), "Hello", None)
"""


def test_a_reader_behind_a_pipe_gets_each_piece_at_once():
    running = process(STREAM_ONE_AND_WAIT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdout.read(1) == "a"
    assert running.poll() is None
    running.communicate(timeout=60)


def test_no_rate_is_told_where_there_is_none(capsys):
    print_speed(output_of("a", num_tokens=1))
    print_speed(output_of("", num_tokens=0))
    assert capsys.readouterr().err == (
        "3 prompt tokens (1 cached), 1 output tokens, first after 0.500 s\n"
        "3 prompt tokens (1 cached), 0 output tokens\n"
    )


def test_results_that_come_in_any_order_are_written_in_order_as_early_as_possible(capsys):
    prompts = [UserPrompt(f"Say {number}", f"line {number} of x") for number in range(4)]
    results = OrderedResults(4, ResultWriter(as_json=False, as_ids=False), ProgressBar("Generating"))
    written = []
    for position in (2, 0, 3, 1):
        output = output_of("", error="too long", num_tokens=0) if position == 3 else output_of(f"text {position}")
        results.add(position, Result(prompts[position], output))
        written.append(capsys.readouterr())
    blocks = [f"==> line {i} of x: Say {i}\ntext {i}\n\n" for i in range(3)]
    assert [out for out, _ in written] == ["", blocks[0], "", blocks[1] + blocks[2]]
    assert [err for _, err in written] == ["", "", "", "error: line 3 of x: too long\n"]
    assert results.totals == Totals(
        num_prompts=4, num_failed=1, num_output_tokens=15, num_cached_tokens=3, num_preemptions=6
    )


@pytest.mark.parametrize(
    ("cached", "preempted", "ends"),
    [
        (0, 0, "5.0 per second"),
        (7, 0, "5.0 per second; 7 prompt tokens were cached"),
        (7, 2, "5.0 per second; 7 prompt tokens were cached; 2 preemptions, for the KV cache was full"),
    ],
)
def test_totals_tell_what_the_cache_saved_and_what_its_size_cost(capsys, cached, preempted, ends):
    print_totals(Totals(2, 1, num_output_tokens=10, num_cached_tokens=cached, num_preemptions=preempted), 2.0)
    assert capsys.readouterr().err == f"2 prompts, 1 failed; 10 output tokens in 2.00 s, {ends}\n"


def test_a_model_without_a_tokenizer_answers_in_ids(capsys):
    ResultWriter(as_json=False, as_ids=True).write(Result(UserPrompt("1 2", "prompt 1"), output_of("")))
    assert capsys.readouterr().out == "==> prompt 1: 1 2\n0 1 2 3 4\n\n"


def test_each_of_several_sequences_has_a_title(capsys):
    completions = [CompletionOutput(index, text, [index], "length", "") for index, text in enumerate(("one", "two"))]
    output = replace(output_of(""), outputs=completions)
    ResultWriter(as_json=False, as_ids=False).write(Result(UserPrompt("Count", "prompt 1"), output))
    assert capsys.readouterr().out == "==> prompt 1, 1 of 2: Count\none\n\n==> prompt 1, 2 of 2: Count\ntwo\n\n"


def test_tokens_of_sequences_that_are_not_shown_count_too():
    output = replace(output_of("one"), usage=Usage(prompt_tokens=3, completion_tokens=15, cached_tokens=0))
    assert Result(UserPrompt("Count", "prompt 1"), output).num_tokens == 15


def json_of(output, error=None, **params):
    return json.loads(result_json("Count", output, error, SamplingParams(**params)))


def test_json_has_every_sequence_and_those_keys_of_the_first_that_one_has():
    completions = [
        CompletionOutput(0, "one", [4, 5], "stop", "", stop_reason="END", cumulative_logprob=-1.5),
        CompletionOutput(1, "two", [6], "length", "", cumulative_logprob=-math.inf),
    ]
    found = json_of(replace(output_of(""), outputs=completions), n=2)
    first = {"text": "one", "token_ids": [4, 5], "finish_reason": "stop"}
    second = {"text": "two", "token_ids": [6], "finish_reason": "length"}
    assert found["outputs"] == [
        first | {"stop_reason": "END", "cumulative_logprob": -1.5, "logprobs": None},
        second | {"stop_reason": None, "cumulative_logprob": None, "logprobs": None},
    ]
    assert {key: found[key] for key in first} == first
    assert found["usage"] == {"prompt_tokens": 3, "completion_tokens": 5, "cached_tokens": 1}
    assert found["prompt_logprobs"] is None


def test_json_of_a_refusal_has_the_same_keys():
    answer, refusal = json_of(output_of("one")), json_of(None, error="too long")
    assert refusal.keys() == answer.keys()
    assert (refusal["text"], refusal["token_ids"], refusal["finish_reason"]) == ("", [], "error")
    assert (refusal["outputs"], refusal["error"]) == ([], "too long")


A, B, C = (Logprob(-0.5, 1, "a"), Logprob(-1.0, 2, "b"), Logprob(-math.inf, 9, None))
ENTRIES = [
    {"token": "a", "id": 4, "logprob": -0.5, "rank": 1},
    {"token": "b", "id": 5, "logprob": -1.0, "rank": 2},
    {"token": None, "id": 6, "logprob": None, "rank": 9},
]


@pytest.mark.parametrize(
    ("told", "num_top", "itself", "top"),
    [
        ({5: B, 4: A}, 2, 1, [0, 1]),  # one of the most likely itself
        ({6: C, 4: A, 5: B}, 2, 2, [0, 1]),  # not one of them
        ({6: C}, 0, 2, []),  # none were asked for
        ({4: A}, 0, 0, []),
        ({4: A}, 1, 0, [0]),
    ],
)
def test_log_probabilities_in_json(told, num_top, itself, top):
    expected = ENTRIES[itself] | {"top": [ENTRIES[i] for i in top]}
    output = output_of("one")
    completion = replace(output.outputs[0], logprobs=[told, told])
    found = json_of(replace(output, outputs=[completion], prompt_logprobs=[None, told]), logprobs=num_top)
    assert found["outputs"][0]["logprobs"] == [expected, expected]
    found = json_of(replace(output, prompt_logprobs=[None, told]), prompt_logprobs=num_top)
    assert found["prompt_logprobs"] == [None, expected]
