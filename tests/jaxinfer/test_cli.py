"""The command line: real models, real engine, the whole program from its arguments to its exit code."""

import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from importlib.metadata import version
from math import isclose, prod
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from checkpoints.safetensors_source import SafetensorsSource
from jaxinfer.cli import app
from jaxinfer.cli.exits import shown_warnings
from jaxinfer.cli.generate import stream_one
from jaxinfer.cli.progress import ProgressBar
from jaxinfer.cli.prompts import PromptForm, UserPrompt, gather_prompts
from jaxinfer.cli.results import OrderedResults, Result, ResultWriter, Totals, print_speed, print_totals
from jaxinfer.kernel_self_test import KernelSelfTestError
from jaxinfer.outputs import CompletionOutput, RequestMetrics, RequestOutput, Usage
from jaxinfer.sampling_params import SamplingParams
from tests.conversations import UNFIT, FakeTokenizer

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
SMALL_ENGINE = ["--max-num-seqs", "1", "--max-model-len", "256"]
GREEDY = ["--temperature", "0"]
LINES = ["Once upon a time", "", "Tom and Lily went to the park", "once " * 300]
"""The second has no token and the last is longer than ``SMALL_ENGINE`` allows."""


def jaxinfer(*arguments, stdin=None):
    return CliRunner().invoke(app, [*map(str, arguments)], input=stdin)


def process(code, **options):
    """A fresh interpreter that buffers its output as it does for users, whatever the test run has set."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | options.pop("env", {})
    return subprocess.Popen([sys.executable, "-c", code], text=True, env=env, **options)


@pytest.fixture(scope="module")
def stories(shared_data):
    return ["generate", "--model", shared_data / "stories260K-hf", *SMALL_ENGINE, *GREEDY]


@pytest.fixture(scope="module")
def json_run(stories, tmp_path_factory):
    """One run over good and bad prompts, looked at by several tests."""
    file = tmp_path_factory.mktemp("prompts") / "prompts.txt"
    file.write_text("\n".join(LINES) + "\n")
    return SimpleNamespace(file=file, result=jaxinfer(*stories, "--prompts-file", file, "--max-tokens", 20, "--json"))


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_json_gives_one_object_for_each_line_in_their_order(json_run):
    found = [json.loads(line) for line in json_run.result.stdout.splitlines()]
    assert [answer["prompt"] for answer in found] == LINES
    assert all(
        answer.keys() == {"prompt", "text", "token_ids", "finish_reason", "metrics", "usage", "error"}
        for answer in found
    )


def test_a_prompt_that_fails_is_named_and_the_others_are_answered(json_run):
    found = [json.loads(line) for line in json_run.result.stdout.splitlines()]
    assert json_run.result.exit_code == 1
    for answer in (found[0], found[2]):
        assert (answer["error"], answer["finish_reason"], len(answer["token_ids"])) == (None, "length", 20)
        assert answer["text"]
    for answer in (found[1], found[3]):
        assert (answer["text"], answer["token_ids"], answer["finish_reason"]) == ("", [], "error")
        assert (answer["metrics"], answer["usage"]) == (None, None)
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
    streamed = jaxinfer(*stories, "--prompt", LINES[0], "--max-tokens", 20)
    assert streamed.exit_code == 0, streamed.stderr
    assert streamed.stdout == found["text"] + "\n"
    assert (shared_data / "stories260K-greedy-200.txt").read_text().startswith(LINES[0] + found["text"])
    assert re.fullmatch(
        POOL_LINE + r"\d+ prompt tokens, 20 output tokens, first after \d+\.\d+ s, then \d+\.\d tokens per second\n",
        streamed.stderr,
    )


def test_gpu_kernels_interpreted_write_the_same_text_and_a_warning(shared_data):
    model = ["--model", shared_data / "stories260K-hf", "--max-num-seqs", "1", "--max-model-len", "64"]
    result = jaxinfer("generate", *model, *GREEDY, "--kernels", "pallas", "--prompt", LINES[0], "--max-tokens", "16")
    assert result.exit_code == 0, result.stderr
    text = LINES[0] + result.stdout.removesuffix("\n")
    assert (shared_data / "stories260K-greedy-200.txt").read_text().startswith(text)
    assert len(text) > len(LINES[0]) + 16
    assert result.stderr.startswith("warning: kernels is 'pallas' on a cpu: the GPU kernels are interpreted")


@pytest.mark.parametrize("quantization", [["int8"], ["int4", "--group-size", "32"]], ids=" ".join)
def test_a_story_in_fewer_bits_begins_as_it_did(shared_data, quantization):
    model = ["--model", shared_data / "stories260K-hf", "--max-num-seqs", "1", "--max-model-len", "64"]
    options = [*model, *GREEDY, "--quantization", *quantization, "--max-tokens", "16"]
    result = jaxinfer("generate", *options, "--prompt", LINES[0])
    assert result.exit_code == 0, result.stderr
    text = LINES[0] + result.stdout.removesuffix("\n")
    assert (shared_data / "stories260K-greedy-200.txt").read_text().startswith(text[: len(LINES[0]) + 12])
    assert len(text) > len(LINES[0]) + 16


# ---- how answers are written -----------------------------------------------------------------------------------------

START, FIRST, END = 100.0, 100.5, 102.5
"""Times of a made-up request of five tokens: 0.5 s to the first, then 4 in 2 s."""


def output_of(text, *, delta="", num_tokens=5, error=None):
    """What the engine gives for a request of 3 prompt tokens, in the middle or at the end."""
    metrics = RequestMetrics(START, START, FIRST if num_tokens else None, END, num_tokens, num_preemptions=2)
    completion = CompletionOutput(0, text, [*range(num_tokens)], "error" if error else "length", delta)
    usage = Usage(prompt_tokens=3, completion_tokens=num_tokens, cached_tokens=1)
    metrics, usage = (None, None) if error else (metrics, usage)
    return RequestOutput("0", None, [7, 8, 9], [completion], True, metrics, usage, error)


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


# ---- what is refused before any weight is read -----------------------------------------------------------------------

RANDOM = ["--load-format", "random"]
"""A model that needs no file."""


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--temperature", "-1"], "temperature is -1.0"),
        (["--temperature", "nan"], "temperature is nan"),
        (["--top-p", "0"], "top_p is 0.0"),
        (["--min-p", "1.5"], "min_p is 1.5"),
        (["--top-k", "-2"], "top_k is -2"),
        (["--max-tokens", "-1"], "max_tokens is -1"),
        (["--min-tokens", "200"], "max_tokens, which is 128"),
        (["--seed", "-1"], "seed is -1"),
        (["--stop-token-id", "-5"], "-5"),
        (["--model", "no/such/model.gguf"], "'no/such/model.gguf'"),
        (["--load-format", "warm"], "'warm'"),
        (["--kernels", "triton"], "kernels is 'triton'; it must be 'auto', 'xla' or 'pallas'"),
        (["--quantization", "int3"], "quantization is 'int3'; it must be 'int8' or 'int4'"),
        (["--quantization", "int4", "--group-size", "48"], "group_size is 48; it must be 32, 64, 128, or 0"),
        (["--group-size", "64"], "group_size is 64, and only quantization 'int4' has groups"),
        (["--kv-dtype", "fp8", *RANDOM], "kv_dtype is 'fp8'; it must be 'auto' or 'int8'"),
        (["--memory-fraction", "1.5", *RANDOM], "memory_fraction is 1.5; it must be a number in (0, 1]"),
        (["--memory-fraction", "nan", *RANDOM], "memory_fraction is nan; it must be a number in (0, 1]"),
        (["--page-size", "0", *RANDOM], "page_size is 0; it must be a whole number in [1, 65536]"),
        (["--cache", "ring", *RANDOM], "cache is 'ring'; it must be 'paged' or 'contiguous'"),
        (["--num-kv-pages", "0", *RANDOM], "num_kv_pages is 0"),
        (["--chat", "--token-ids"], "--token-ids"),
        (["--system", "Be brief."], "--system"),
        (["--chat-template-kwargs", "{}"], "--chat-template-kwargs goes with --chat"),
        (["--chat", "--chat-template-kwargs", "{a"], "'{a'"),
        (["--chat", "--chat-template-kwargs", "[1]"], "'[1]'"),
        (["--chat", "--chat-template-kwargs", '{"a": NaN}'], "NaN is no JSON"),
        (["--prompts-file", "-"], "--prompts-file"),
        (["--prompts-file", ""], "--prompts-file"),
    ],
)
def test_a_bad_value_is_one_line_and_exit_code_2(arguments, named):
    result = jaxinfer("generate", "--prompt", "Hello", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert named in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["info"], ["generate", "--prompt", "Hello", "--model"]])
def test_a_foreign_file_is_named(command, tmp_path):
    file = tmp_path / "notes.gguf"
    file.write_text("This is no model, though it is long enough to hold a header.")
    result = jaxinfer(*command, file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {file}: ")
    assert result.stderr.count("\n") == 1


def test_a_gpu_kernel_that_fails_its_test_is_one_line_and_exit_code_4(monkeypatch):
    def fail(*arguments, **options):
        raise KernelSelfTestError("the GPU kernel for something computes wrong values")

    monkeypatch.setattr("jaxinfer.llm.build_engine", fail)
    result = jaxinfer("generate", "--prompt", "1", "--token-ids", "--load-format", "random")
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == "error: the GPU kernel for something computes wrong values\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"kv_dtype": "auto", "prefix_cache": True, "cache": "paged", "page_size": 16, "memory_fraction": None}),
        (["--kv-dtype", "int8"], {"kv_dtype": "int8"}),
        (["--memory-fraction", "0.25"], {"memory_fraction": 0.25}),
        (["--page-size", "8"], {"page_size": 8}),
        (["--no-prefix-cache"], {"prefix_cache": False}),
        (["--cache", "contiguous"], {"cache": "contiguous"}),
        (["--num-kv-pages", "9"], {"num_kv_pages": 9}),
    ],
)
def test_options_of_the_cache_are_passed_on(monkeypatch, arguments, expected):
    found = {}

    def build(loaded, **settings):
        found.update(settings)
        raise ValueError("that will do")

    monkeypatch.setattr("jaxinfer.llm.build_engine", build)
    result = jaxinfer("generate", "--prompt", "1", "--token-ids", *RANDOM, *arguments)
    assert result.stderr == "error: that will do\n"
    assert {name: found[name] for name in expected} == expected


def test_an_unknown_option_and_a_word_for_a_number_have_exit_code_2():
    assert jaxinfer("generate", "--no-such-option").exit_code == 2
    assert jaxinfer("generate", "--prompt", "Hello", "--max-tokens", "many").exit_code == 2


def test_generate_without_a_prompt_says_how_to_give_one():
    result = jaxinfer("generate")
    assert result.exit_code == 2
    assert "--prompts-file" in result.stderr


# ---- prompts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\r\ntwo", ["one", "two"]),
        (b"\xef\xbb\xbfone\n", ["one"]),  # the mark with which Windows begins a UTF-8 file
        (b" one \n\ntwo\n\n", [" one ", "", "two", ""]),
        ("a\u2028b\x0cc\n".encode(), ["a\u2028b\x0cc"]),  # line ends to str.splitlines, but not to an editor
        (b"\n", None),
        (b"", None),
    ],
)
def test_lines_of_a_prompts_file(raw, expected, tmp_path):
    file = tmp_path / "prompts"
    file.write_bytes(raw)
    if expected is None:
        with pytest.raises(ValueError, match=f"{file} has no prompt"):
            gather_prompts(None, str(file))
    else:
        found = gather_prompts(None, str(file))
        assert [prompt.text for prompt in found] == expected
        assert [prompt.place for prompt in found] == [f"line {i + 1} of {file}" for i in range(len(expected))]


def test_a_prompts_file_that_cannot_be_read_is_named(tmp_path):
    binary = tmp_path / "binary"
    for mark in (b"", b"\xef\xbb\xbf"):
        binary.write_bytes(mark + b"ok\n\xff\xfe")
        with pytest.raises(ValueError, match=rf"{binary} is not UTF-8: byte {len(mark) + 3} is 0xff"):
            gather_prompts(None, str(binary))
    with pytest.raises(ValueError, match=f"{tmp_path / 'absent'} cannot be read: No such file"):
        gather_prompts(None, str(tmp_path / "absent"))


def test_a_prompts_file_without_a_name_is_no_folder():
    assert jaxinfer("generate", "--prompts-file", "").stderr == (
        "error: --prompts-file has an empty name; give a file, or - for stdin\n"
    )


def test_prompts_are_read_from_stdin(monkeypatch):
    result = jaxinfer("generate", "--prompts-file", "-", "--model", "nowhere.gguf", stdin="")
    assert result.stderr == "error: the prompts file stdin has no prompt\n"


def test_token_ids_are_separated_by_commas_or_spaces():
    form = PromptForm(chat=False, system=None, template_kwargs=None, token_ids=True)
    assert form.engine_prompt("1, 22 333,4") == {"prompt_token_ids": [1, 22, 333, 4]}


@pytest.mark.parametrize(
    "text", ["1 b", "1_0", "-1", "+1", "1.0", "0x1", "\u0663", "\uff11", "\u00b2", "7" * 5000, "7 x" * 5000]
)
def test_anything_but_decimal_digits_is_no_token_id_and_is_quoted_in_short(text):
    form = PromptForm(chat=False, system=None, template_kwargs=None, token_ids=True)
    with pytest.raises(ValueError, match="with --token-ids") as error:
        form.engine_prompt(text)
    assert repr(text)[:8] in str(error.value)
    assert len(str(error.value)) < 200


def test_chat_puts_the_system_message_before_the_users():
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}
    with_system = PromptForm(chat=True, system="Be brief.", template_kwargs=None, token_ids=False)
    assert with_system.engine_prompt("Who?") == {"messages": [system, user]}
    options = {"enable_thinking": False}
    with_options = PromptForm(chat=True, system=None, template_kwargs=options, token_ids=False)
    assert with_options.engine_prompt("Who?") == {"messages": [user], "chat_template_kwargs": options}


@pytest.mark.parametrize(
    ("tokenizer", "system", "words"),
    [
        (None, "Be brief.", "this model has no chat template; leave out --chat"),
        (SimpleNamespace(can_chat=False), "Be brief.", "this model has no chat template; leave out --chat"),
        (FakeTokenizer(), UNFIT, "the chat template failed: unfit"),
    ],
)
def test_chat_with_a_model_that_cannot_is_refused_before_its_weights_are_read(tokenizer, system, words, monkeypatch):
    def make(*arguments, **settings):
        raise AssertionError("the weights were wanted")

    monkeypatch.setattr("jaxinfer.llm.LLM", make)
    monkeypatch.setattr("jaxinfer.loading.open_model", lambda model, load_format: SimpleNamespace(tokenizer=tokenizer))
    result = jaxinfer("generate", "--model", "some-model", "--prompt", "Hello", "--chat", "--system", system)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"error: {words}\n")


# ---- info ------------------------------------------------------------------------------------------------------------


def count_in_header(file):
    """Numbers in a safetensors file: 8 bytes of length, then JSON with the shape of every tensor."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    return sum(prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def test_info_counts_what_the_file_holds_and_reads_no_tensor(monkeypatch):
    def read(*arguments):
        raise AssertionError("a tensor was read")

    monkeypatch.setattr(SafetensorsSource, "read", read)
    folder = FIXTURES / "tiny_mistral"
    written = json.loads((folder / "config.json").read_text())
    result = jaxinfer("info", folder, "--dtype", "float32", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    count = count_in_header(folder / "model.safetensors")
    assert (found["layout"], found["num_parameters"], found["weight_bytes"]) == ("huggingface", count, 4 * count)
    assert found["kv_bytes_per_token"] == (
        written["num_hidden_layers"] * 2 * written["num_key_value_heads"] * written["head_dim"] * 4
    )
    assert found["config"]["windows"] == [written["sliding_window"]] * written["num_hidden_layers"]


@pytest.mark.parametrize(
    ("preset", "num_parameters", "kv_elements"),
    [
        ("mistral-7b-v0.1", 7_241_732_096, 32 * 2 * 8 * 128),  # the count that its model card gives
        ("smollm2-135m", 134_515_008, 30 * 2 * 3 * 64),
    ],
)
def test_info_of_a_preset_needs_no_weights(preset, num_parameters, kv_elements):
    found = json.loads(jaxinfer("info", preset, "--json").stdout)
    assert (found["layout"], found["path"], found["dtype"]) == ("preset", None, "bfloat16")
    assert (found["num_parameters"], found["weight_bytes"]) == (num_parameters, 2 * num_parameters)
    assert found["kv_bytes_per_token"] == 2 * kv_elements
    table = jaxinfer("info", preset).stdout
    assert f"{num_parameters:,}" in table
    assert f"{2 * kv_elements:,} bytes per token" in table


def test_info_refuses_a_dtype_that_it_does_not_know():
    result = jaxinfer("info", "smollm2-135m", "--dtype", "int4")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: dtype is 'int4'; it must be 'float32' or 'bfloat16'\n"


# ---- the program as a whole ------------------------------------------------------------------------------------------


def test_version():
    assert jaxinfer("--version").stdout == f"jaxinfer {version('jaxinfer')}\n"


@pytest.mark.parametrize(
    "arguments",
    ["['--help']", "['generate', '--help']", "['chat', '--help']", "['info', 'smollm2-135m']", "['models']"],
)
def test_jax_is_imported_only_where_it_is_needed(arguments):
    code = (
        "import sys; from jaxinfer.cli import app\n"
        f"app({arguments}, standalone_mode=False); sys.exit('jax' in sys.modules)"
    )
    running = process(code, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, stderr = running.communicate(timeout=60)
    assert running.returncode == 0, stderr


def test_a_warning_is_in_the_log_when_it_is_given(tmp_path):
    """Not when the program ends: a log file would show no sign of life meanwhile."""
    log = tmp_path / "log"
    code = (
        "import sys; from pathlib import Path; from jaxinfer.cli.streams import guarded_streams\n"
        f"with guarded_streams(): print('warning: slow', file=sys.stderr); print(Path({str(log)!r}).read_text())"
    )
    with log.open("w") as file:
        running = process(code, stdout=subprocess.PIPE, stderr=file)
        stdout, _ = running.communicate(timeout=60)
    assert stdout == "warning: slow\n\n"


@pytest.fixture(scope="module")
def script():
    """The installed command, as pyproject.toml defines it."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        module, name = tomllib.load(file)["project"]["scripts"]["jaxinfer"].split(":")
    return f"from {module} import {name}; {name}()"


def shell(code, arguments, redirections=""):
    """One run under a shell, which can close a stream or give it a file that takes nothing."""
    words = shlex.join([sys.executable, "-c", code, *map(str, arguments)])
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    line = f"{words} {redirections}"
    return subprocess.run(["/bin/sh", "-c", line], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)


def end_of(done):
    return done.returncode, done.stdout, done.stderr


PRESET = ["info", "mistral-7b-v0.1"]
FULL_DISK = "error: stdout cannot be written: No space left on device\n"
needs_full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")


@needs_full_disk
@pytest.mark.parametrize("arguments", [PRESET, [*PRESET, "--json"], ["--help"], ["--version"]])
def test_a_full_disk_under_stdout_is_one_line_and_exit_code_3(script, arguments):
    assert end_of(shell(script, arguments, ">/dev/full")) == (3, "", FULL_DISK)


@pytest.mark.parametrize("arguments", [PRESET, ["--help"]])
def test_a_closed_stdout_is_one_line_and_exit_code_3(script, arguments):
    assert end_of(shell(script, arguments, ">&-")) == (3, "", "error: stdout is closed\n")


@pytest.mark.parametrize(
    ("arguments", "exit_code"), [(["info", "no/such.gguf"], 2), (["generate", "--nope"], 2), ([*PRESET, "--json"], 0)]
)
@pytest.mark.parametrize("stderr", ["2>&-", pytest.param("2>/dev/full", marks=needs_full_disk)])
def test_what_stderr_does_not_take_goes_nowhere_and_changes_no_exit_code(script, arguments, exit_code, stderr):
    done = shell(script, arguments, stderr)
    assert (done.returncode, done.stderr) == (exit_code, "")
    if exit_code == 0:
        assert json.loads(done.stdout)["model"] == "mistral-7b-v0.1"
    else:
        assert done.stdout == ""


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


def test_a_closed_stdin_is_named(script):
    expected = (2, "", "error: --prompts-file is -, and stdin is closed\n")
    assert end_of(shell(script, ["generate", "--prompts-file", "-"], "<&-")) == expected


COMMAND = """
import sys
from jaxinfer.cli import app

@app.command()
def added():
    BODY

sys.argv[1:] = ["added"]
RUN
"""


@pytest.fixture
def added(script):
    """Makes the program with one more command."""
    return lambda body: COMMAND.replace("BODY", body).replace("RUN", script)


WRITE_FOR_EVER = "while True: print('word', flush=True)"
WRITE_ONCE_LATE = "sys.stdin.read(); print('word')"


def test_a_reader_that_leaves_ends_it_without_a_traceback(added):
    running = process(added(WRITE_FOR_EVER), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout.readline() == "word\n"
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait(timeout=60) == 128 + signal.SIGPIPE


def test_a_reader_that_left_before_the_last_short_text_ends_it_so_too(added):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    running = process(added(WRITE_ONCE_LATE), **pipes)
    running.stdout.close()
    running.stdin.close()
    assert running.stderr.read() == ""
    assert running.wait(timeout=60) == 128 + signal.SIGPIPE


def test_text_beyond_the_terminals_encoding_does_not_end_it(added):
    code = added("print('caf\\u00e9 \\u2603')")
    running = process(code, stdout=subprocess.PIPE, env={"PYTHONIOENCODING": "ascii"})
    stdout, _ = running.communicate(timeout=60)
    assert (running.returncode, stdout) == (0, "caf? ?\n")


def interrupted(code, *, times=1, **options):
    """How a program ends that gets SIGINT once it has said ``word``."""
    running = process(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    assert running.stdout.readline() == "word\n"
    for _ in range(times):
        running.send_signal(signal.SIGINT)
        time.sleep(0.03)
    _, stderr = running.communicate(timeout=60)
    return running.returncode, stderr


QUIET_END = (128 + signal.SIGINT, "\ninterrupted\n")


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_it_without_a_traceback(added, times):
    assert interrupted(added(WRITE_FOR_EVER), times=times) == QUIET_END


def test_ctrl_c_ends_it_where_an_exception_would_be_dropped(added):
    """jax has such a callback in the garbage collector: the program went on, with a traceback in its output."""
    body = "import gc; gc.callbacks.append(lambda *_: [print('word', flush=True) for _ in iter(int, 1)]); gc.collect()"
    assert interrupted(added(body)) == QUIET_END


def test_ctrl_c_during_its_imports_ends_it_without_a_traceback(script, tmp_path):
    """``typer``, the first import of the command line that takes a while, is replaced by one that takes for ever."""
    (tmp_path / "typer.py").write_text(WRITE_FOR_EVER)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {script}"
    assert interrupted(code) == QUIET_END


def test_ctrl_c_is_ignored_where_the_program_was_started_so(added):
    """As a shell script starts what it puts in the background."""
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + added(
        "print('word', flush=True); sys.stdin.read()"
    )
    running = process(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout.readline() == "word\n"
    running.send_signal(signal.SIGINT)
    assert (running.communicate(timeout=60)[1], running.returncode) == ("", 0)


def test_python_m_runs_the_same_program():
    done = subprocess.run(
        [sys.executable, "-m", "jaxinfer", "--version"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert end_of(done) == (0, f"jaxinfer {version('jaxinfer')}\n", "")


def test_warnings_of_the_project_are_lines_on_stderr_and_no_handler_stays(capsys):
    for _ in range(2):
        with shown_warnings():
            logging.getLogger("jaxinfer.loading").warning("the cache holds %d tokens", 7)
            logging.getLogger("jaxinfer.loading").info("not shown")
    assert capsys.readouterr().err == "warning: the cache holds 7 tokens\n" * 2


def test_an_empty_single_prompt_is_refused_before_the_model_is_loaded():
    result = jaxinfer("generate", "--model", "/nowhere", "--prompt", "")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: prompt 1: the prompt is empty; at least one token is needed\n"
