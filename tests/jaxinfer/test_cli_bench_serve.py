"""``jaxinfer bench serve``: from the options to tables, files and exit codes."""

import json
import math
import shlex
import signal
import subprocess
import sys
import time

import httpx
import pytest
import typer

from jaxinfer.bench.load import LoadRun
from jaxinfer.bench.record import RequestRecord
from jaxinfer.bench.summary import summarize
from jaxinfer.cli import app
from jaxinfer.cli.bench_serve_report import as_json, remarks
from jaxinfer.llm import LLM
from tests.command_line import installed_command, jaxinfer, process
from tests.engines import one_program
from tests.servers import MODEL, serving
from tests.sse_server import DONE, Answer, fake_server, json_answer, refusal, text_event, usage_event

LATENCIES = ("ttft", "tpot", "itl", "e2e")


def bench(*arguments):
    return jaxinfer("bench", "serve", *arguments)


def metric(text, name):
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name)


# ---- a real server ---------------------------------------------------------------------------------------------------


def test_a_run_against_this_server(shared_data, tmp_path):
    """The oracle is what the server says of itself: its counts of tokens, and its latencies, which lie within these."""
    report, plot, key = tmp_path / "report.json", tmp_path / "plot.png", tmp_path / "key"
    key.write_text("secret\n")
    load = shlex.split("--rate 40 --rate inf --num-prompts 8 --num-warmups 0 --input-tokens 20 --output-tokens 6")
    with one_program():
        llm = LLM(shared_data / "stories260K-hf", max_num_seqs=4, max_chunk_tokens=32, max_model_len=128)
    with serving(llm, api_key="secret") as server:
        files = ["--json", report, "--plot", plot, "--api-key", f"@{key}"]
        result = bench("--base-url", server.url, *load, *files, "--ignore-eos", "--goodput", "e2e:60000 ttft:60000")
        metrics = httpx.get(f"{server.url}/metrics").text
    assert result.exit_code == 0, result.output
    found = json.loads(report.read_text())
    assert [run["rate"] for run in found["runs"]] == [40, "inf"]
    assert found["arguments"]["model"] == MODEL
    for run in found["runs"]:
        assert (run["num_answered"], run["output_tokens"], run["errors"]) == (8, 48, {})
        assert 8 * 10 < run["input_tokens"] < 8 * 30
        assert run["goodput"] == run["requests_per_second"] > 0
        assert all(0 <= run[name]["p50"] <= run[name]["p99"] <= run[name]["max"] for name in LATENCIES)
    ours = sum(8 * run["ttft"]["mean"] for run in found["runs"]) / 1000
    theirs = metric(metrics, "jaxinfer_time_to_first_token_seconds_sum")
    num_counted = metric(metrics, "jaxinfer_time_to_first_token_seconds_count")
    assert num_counted == 18  # with two whose tokens were counted
    assert 0 < ours < theirs + 18 * 0.5
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "secret" not in report.read_text() + result.output


# ---- a made-up one ---------------------------------------------------------------------------------------------------

MODELS = json_answer({"data": [{"id": "first", "max_model_len": 300}]})


def good(path, body):
    if body is None:
        return MODELS
    return Answer([(0, text_event("a")), (0.01, text_event("b", "stop")), (0, usage_event(7, 2)), (0, DONE)])


EVERY_OPTION = shlex.split(
    "--api-key k --model second --endpoint completions --max-total-tokens 300 --ignore-eos --temperature 0.5 "
    "--rate 50 --rate 100 --burstiness 2 --num-prompts 3 --max-concurrency 2 --num-warmups 0 --timeout 9 --seed 4 "
    "--extra-body '{\"top_k\": 3}' --goodput ttft:500 --goodput e2e:900"
)


def options():
    command = typer.main.get_command(app).commands["bench"].commands["serve"]
    return {param.opts[0] for param in command.params} - {"--help"}


def test_each_option_arrives_where_it_is_used(tmp_path, shared_data):
    report, lengths = tmp_path / "report.json", shared_data / "sharegpt_lengths.csv"
    mine = [*EVERY_OPTION, "--json", report, "--lengths", lengths]
    with fake_server(good) as server:
        result = bench("--base-url", f"{server.url}/v1", *mine)
    assert result.exit_code == 0, result.output
    elsewhere = {"--base-url", "--plot", "--prompts-file", "--input-tokens", "--output-tokens"}
    assert options() == {str(word) for word in mine if str(word)[:2] == "--"} | elsewhere
    calls = [(headers["authorization"], body) for path, headers, body in server.calls if path == "/v1/completions"]
    assert len(calls) == 2 + 6
    for key, body in calls:
        given = {name: body[name] for name in ("model", "temperature", "ignore_eos", "top_k")}
        assert (key, given) == ("Bearer k", {"model": "second", "temperature": 0.5, "ignore_eos": True, "top_k": 3})
    assert sorted(body["max_tokens"] for _, body in calls[-3:]) == [73, 138, 256]  # of the lines that fit
    assert server.most_open <= 2
    arguments = json.loads(report.read_text())["arguments"]
    assert "api_key" not in arguments
    assert {name: arguments[name] for name in ("rate", "burstiness", "timeout", "seed")} == {
        "rate": [50, 100],
        "burstiness": 2,
        "timeout": 9,
        "seed": 4,
    }
    assert arguments["targets"] == {"ttft": 500, "e2e": 900}


def test_tables(tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\ntwo\n")
    with fake_server(good) as server:
        result = bench("--base-url", server.url, "--prompts-file", prompts, "--output-tokens", 5, "--num-prompts", 4)
    counts, latencies = result.stdout.split("\n\n")
    header, line = (row.split() for row in counts.replace(" tok/s", "").splitlines())
    assert header == ["rate", "arrived/s", "sent", "answered", "429", "failed", "s", "requests/s", "input", "output"]
    assert (line[0], line[2:6]) == ("inf", ["4", "4", "0", "0"])
    header, *lines = (row.split() for row in latencies.splitlines())
    assert header == ["ms", "rate", "mean", "p50", "p90", "p95", "p99", "max"]
    assert [row[:2] for row in lines] == [[name.upper(), "inf"] for name in LATENCIES]
    assert all(float(value) >= 10 for value in lines[3][2:])  # the second token comes 10 ms after the first
    assert (result.exit_code, result.stderr) == (0, "")
    assert [body["prompt"] for _, _, body in server.calls[1:2]] == ["one"]
    assert all(body["max_tokens"] == 5 for _, _, body in server.calls[1:])


def test_requests_that_are_not_answered_are_told_and_counted(tmp_path):
    prompts, report = tmp_path / "prompts.txt", tmp_path / "report.json"
    prompts.write_text("one\nbusy\nbroken\n")

    def answer(path, body):
        if body and body["prompt"] == "busy":
            return refusal(429, "the queue is full\x1b[2J")
        if body and body["prompt"] == "broken":
            return Answer([(0, text_event("a"))])
        return good(path, body)

    with fake_server(answer) as server:
        files = ["--prompts-file", prompts, "--json", report]
        result = bench("--base-url", server.url, "--num-prompts", 6, "--max-concurrency", 1, *files)
    assert result.exit_code == 1
    line = "rate inf: 2 x 429, 2 x broken off; the first: the queue is full\\x1b[2J\n"
    assert result.stderr == f"warning: {line}"
    [run] = json.loads(report.read_text())["runs"]
    assert (run["num_answered"], run["num_refused"], run["num_failed"]) == (2, 2, 2)


def test_a_server_without_counts_is_told_of():
    with fake_server(lambda path, body: Answer([(0, text_event("a", "stop"))]) if body else MODELS) as server:
        result = bench("--base-url", server.url, "--num-prompts", 2)
    assert result.exit_code == 0
    assert "the server does not count tokens; events with text were counted" in result.stderr
    assert result.stdout.splitlines()[1].split()[-2:-1] == ["-"]


def test_a_server_that_refuses_is_one_line_and_exit_code_1():
    with fake_server(lambda path, body: refusal(400, "too long") if body else MODELS) as server:
        result = bench("--base-url", server.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: a request before the first run was not answered: 400: too long\n"


def test_ctrl_c_prints_what_is_done():
    """One request of four is answered, and the others take their time."""

    def answer(path, body):
        slow = body is not None and len(server.calls) > 5  # after the models, two counts, a warm-up and one more
        return Answer([(30.0, DONE)]) if slow else good(path, body)

    with fake_server(answer) as server:
        arguments = ["bench", "serve", "--base-url", server.url, "--num-prompts", "4", "--rate", "20", "--rate", "1"]
        code = f"import sys; sys.argv[1:] = {arguments}; {installed_command()}"
        running = process(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while not (len(server.calls) > 5 and server.num_open == len(server.calls) - 5) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)  # for what the server has written to be read
        running.send_signal(signal.SIGINT)
        stdout, stderr = running.communicate(timeout=30)
    assert running.returncode == 128 + signal.SIGINT, stderr
    _, line, _, _, *latencies = stdout.splitlines()
    assert (line.split()[0], line.split()[3]) == ("20", "1")
    assert len(latencies) == 4
    assert "requests were under way when it was stopped\n" in stderr
    assert stderr.endswith("interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--base-url", "nowhere"], "the address is 'nowhere'; it must be http://HOST:PORT or https://HOST:PORT"),
        (["--endpoint", "edits"], "the endpoint is 'edits'; it must be completions or chat"),
        (["--rate", "0"], "rate is 0.0; it must be a number > 0"),
        (["--num-prompts", "0"], "num_prompts is 0"),
        (["--goodput", "ttft"], "a target is 'ttft'; it must be METRIC:MILLISECONDS"),
        (["--extra-body", "[]"], "--extra-body is '[]'; it must be a JSON object"),
        (["--extra-body", '{"n": 2}'], "--extra-body has n 2; one sequence is measured"),
        (["--json", "no/such/file"], "--json is 'no/such/file', and there is no folder 'no/such'"),
        (["--plot", "no/such.png"], "--plot is 'no/such.png', and there is no folder 'no'"),
        (["--plot", "plot.txt"], "the plot is 'plot.txt'; its name must end in one of "),
        (["--api-key", "@"], "--api-key is '@'; the name of a file follows it"),
        (["--lengths", "a", "--prompts-file", "b"], "--prompts-file and --lengths are both given; choose one"),
        (["--lengths", "a", "--input-tokens", "3"], "--input-tokens is of made-up prompts"),
        (["--prompts-file", "a", "--input-tokens", "3"], "--input-tokens is of made-up prompts"),
        (["--lengths", "a", "--output-tokens", "3"], "--output-tokens and --lengths both say how long"),
        (["--max-total-tokens", "3"], "--max-total-tokens goes with --lengths"),
        (["--input-tokens", "0"], "--input-tokens is 0; it must be a whole number >= 1"),
        (["--lengths", "no/such"], "the lengths no/such cannot be read: No such file or directory"),
        (["--prompts-file", "no/such"], "the prompts file no/such cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(arguments, message):
    with fake_server(good) as server:
        result = bench("--base-url", server.url, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {message}"), result.stderr
    assert [path for path, _, _ in server.calls if path != "/v1/models"] == []


def test_a_plot_without_matplotlib_is_refused_before_the_run(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.backend_bases", None)
    result = bench("--plot", "plot.png")
    assert (result.exit_code, result.stderr) == (2, "error: a plot needs matplotlib: pip install 'jaxinfer[plot]'\n")


def test_a_file_that_cannot_be_written_after_all_is_exit_code_3(tmp_path):
    with fake_server(good) as server:
        result = bench("--base-url", server.url, "--num-prompts", 2, "--json", tmp_path)
    assert result.exit_code == 3
    assert result.stdout.startswith("rate ")
    assert "Is a directory" in result.stderr


def test_a_client_that_is_too_slow_says_so():
    records = [RequestRecord(due=0, sent=0.05, text_times=[1.0], ended=1.0, completion_tokens=1)]
    slow = summarize(LoadRun(records=records, seconds=1, cpu_share=0.95), 2.0, {})
    late, busy = remarks(slow, None)
    assert late == "rate 2: this client sent a request 50 ms late"
    assert busy == "rate 2: this client took 95% of a core; it may be what was measured"
    assert list(remarks(slow, 1)) == [busy]  # it waits for others then
    records[0].sent = 0.01
    assert list(remarks(summarize(LoadRun(records=records, seconds=1, cpu_share=0.5), 2.0, {}), None)) == []


def test_what_is_infinite_is_written_in_json():
    text = as_json([], {"rate": [math.inf, 1.0], "none": math.nan}, {})
    assert json.loads(text)["arguments"] == {"rate": ["inf", 1.0], "none": None}
