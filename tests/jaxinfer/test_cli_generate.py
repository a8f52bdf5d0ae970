"""``jaxinfer generate`` with a real model, from its arguments to its exit code."""

import json
import re
from math import isclose
from types import SimpleNamespace

import pytest

from tests.command_line import FULL_DISK, end_of, installed_command, jaxinfer, needs_full_disk, shell
from tests.engines import one_program

SMALL_ENGINE = ["--max-num-seqs", "1", "--max-model-len", "256"]
GREEDY = ["--temperature", "0"]
LINES = ["Once upon a time", "", "Tom and Lily went to the park", "once " * 300]
"""The second has no token and the last is longer than ``SMALL_ENGINE`` allows."""


def quick(*arguments):
    """A run in this process: to compile all programs takes longer than to answer."""
    with one_program():
        return jaxinfer(*arguments)


@pytest.fixture(scope="module")
def stories(shared_data):
    return ["generate", "--model", shared_data / "stories260K-hf", *SMALL_ENGINE, *GREEDY]


@pytest.fixture(scope="module")
def script():
    return installed_command()


@pytest.fixture(scope="module")
def json_run(stories, tmp_path_factory):
    """One run over good and bad prompts, looked at by several tests."""
    file = tmp_path_factory.mktemp("prompts") / "prompts.txt"
    file.write_text("\n".join(LINES) + "\n")
    options = ["--max-tokens", 20, "--logprobs", 1, "--prompt-logprobs", 0, "--json"]
    return SimpleNamespace(file=file, result=quick(*stories, "--prompts-file", file, *options))


def test_json_gives_one_object_for_each_line_in_their_order(json_run):
    found = [json.loads(line) for line in json_run.result.stdout.splitlines()]
    assert [answer["prompt"] for answer in found] == LINES
    of_request = {"prompt", "prompt_logprobs", "outputs", "metrics", "usage", "error"}
    assert all(answer.keys() == of_request | {"text", "token_ids", "finish_reason"} for answer in found)


def test_a_prompt_that_fails_is_named_and_the_others_are_answered(json_run):
    found = [json.loads(line) for line in json_run.result.stdout.splitlines()]
    assert json_run.result.exit_code == 1
    for answer in (found[0], found[2]):
        assert (answer["error"], answer["finish_reason"], len(answer["token_ids"])) == (None, "length", 20)
        assert answer["text"]
    for answer in (found[1], found[3]):
        assert (answer["text"], answer["token_ids"], answer["finish_reason"]) == ("", [], "error")
        assert (answer["outputs"], answer["metrics"], answer["usage"]) == ([], None, None)
    assert "empty" in found[1]["error"]
    assert "256" in found[3]["error"]
    errors = [line for line in json_run.result.stderr.splitlines() if line.startswith("error: ")]
    assert sorted(errors) == [
        f"error: line 2 of {json_run.file}: {found[1]['error']}",
        f"error: line 4 of {json_run.file}: {found[3]['error']}",
    ]


def test_an_answer_counts_its_tokens(json_run):
    found = json.loads(json_run.result.stdout.splitlines()[0])
    prompt_tokens = found["usage"].pop("prompt_tokens")
    assert prompt_tokens > 1
    assert found["usage"] == {"completion_tokens": 20, "cached_tokens": 0}


def test_log_probabilities_are_those_of_the_answer_and_of_the_prompt(json_run):
    found = json.loads(json_run.result.stdout.splitlines()[0])
    [sequence] = found["outputs"]
    told = sequence["logprobs"]
    assert [of_token["id"] for of_token in told] == found["token_ids"] == sequence["token_ids"]
    assert {(of_token["rank"], len(of_token["top"])) for of_token in told} == {(1, 1)}, "a greedy answer"
    assert isclose(sum(of_token["logprob"] for of_token in told), sequence["cumulative_logprob"], rel_tol=1e-6)
    first, *others = found["prompt_logprobs"]
    assert first is None
    assert len(others) == found["usage"]["prompt_tokens"] - 1
    assert "".join(of_token["token"] for of_token in others) == f" {LINES[0]}"


POOL_LINE = r"KV cache, float32, 0\.\d\d GiB: 16 pages of 16 tokens hold 256 tokens\n"


def test_what_the_pool_holds_is_said_once(json_run):
    assert len(re.findall("^" + POOL_LINE, json_run.result.stderr, re.MULTILINE)) == 1
    assert json_run.result.stderr.count("KV cache") == 1


def test_the_times_of_an_answer_belong_together(json_run):
    metrics = json.loads(json_run.result.stdout.splitlines()[0])["metrics"]
    assert metrics["ttft"] > 0
    assert metrics["tpot"] > 0
    # The 19 tokens after the first; what the engine does after the last one takes no part of a second.
    assert isclose(metrics["seconds"], metrics["ttft"] + 19 * metrics["tpot"], rel_tol=1e-3)


def test_streamed_text_is_the_text_of_the_json_and_of_another_engine(json_run, stories, shared_data):
    found = json.loads(json_run.result.stdout.splitlines()[0])
    streamed = quick(*stories, "--prompt", LINES[0], "--max-tokens", 20)
    assert streamed.exit_code == 0, streamed.stderr
    assert streamed.stdout == found["text"] + "\n"
    assert (shared_data / "stories260K-greedy-200.txt").read_text().startswith(LINES[0] + found["text"])
    assert re.fullmatch(
        POOL_LINE + r"\d+ prompt tokens, 20 output tokens, first after \d+\.\d+ s, then \d+\.\d tokens per second\n",
        streamed.stderr,
    )


@pytest.mark.slow  # shown in parts by test_cli_options, test_kernel_choice and test_real_models
def test_gpu_kernels_interpreted_write_the_same_text_and_a_warning(shared_data):
    model = ["--model", shared_data / "stories260K-hf", "--max-num-seqs", "1", "--max-model-len", "64"]
    result = quick("generate", *model, *GREEDY, "--kernels", "pallas", "--prompt", LINES[0], "--max-tokens", "16")
    assert result.exit_code == 0, result.stderr
    text = LINES[0] + result.stdout.removesuffix("\n")
    assert (shared_data / "stories260K-greedy-200.txt").read_text().startswith(text)
    assert len(text) > len(LINES[0]) + 16
    assert result.stderr.startswith("warning: kernels is 'pallas' on a cpu: the GPU kernels are interpreted")


@pytest.mark.parametrize(
    "quantization", [pytest.param(["int8"], marks=pytest.mark.slow), ["int4", "--group-size", "32"]], ids=" ".join
)
def test_a_story_in_fewer_bits_begins_as_it_did(shared_data, quantization):
    model = ["--model", shared_data / "stories260K-hf", "--max-num-seqs", "1", "--max-model-len", "64"]
    options = [*model, *GREEDY, "--quantization", *quantization, "--max-tokens", "16"]
    result = quick("generate", *options, "--prompt", LINES[0])
    assert result.exit_code == 0, result.stderr
    text = LINES[0] + result.stdout.removesuffix("\n")
    assert (shared_data / "stories260K-greedy-200.txt").read_text().startswith(text[: len(LINES[0]) + 12])
    assert len(text) > len(LINES[0]) + 16


@pytest.mark.slow
@pytest.mark.parametrize("stderr", ["2>&-", pytest.param("2>/dev/full", marks=needs_full_disk)])
def test_answers_are_whole_whatever_becomes_of_stderr(script, stories, stderr):
    prompts = ["--prompt", LINES[0], "--prompt", "", "--max-tokens", 8]
    lost, seen = (shell(script, [*stories, *prompts, "--json"], where) for where in (stderr, ""))
    for done in (lost, seen):
        assert done.returncode == 1
    answers, expected = ([json.loads(line) for line in done.stdout.splitlines()] for done in (lost, seen))
    assert [answer["token_ids"] for answer in answers] == [answer["token_ids"] for answer in expected]
    streamed = shell(script, [*stories, *prompts[:2], "--max-tokens", 8], stderr)
    assert end_of(streamed) == (0, expected[0]["text"] + "\n", "")


@pytest.mark.slow
@needs_full_disk
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_full_disk_under_answers_ends_it_in_one_line(script, stories, form):
    done = shell(script, [*stories, "--prompt", LINES[0], "--max-tokens", 8, *form], ">/dev/full")
    assert end_of(done) == (3, "", FULL_DISK)
