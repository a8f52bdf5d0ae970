"""``jaxinfer serve``: what is wrong is told before the model is loaded, and what is right reaches the server."""

import json
import re
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import httpx
import pytest

from jaxinfer.cli import serve as command
from jaxinfer.cli.engine_options import EngineOptions
from jaxinfer.server import run
from jaxinfer.server.settings import ServerSettings
from tests.command_line import installed_command, jaxinfer


@pytest.fixture
def opened(monkeypatch):
    """The models that were opened, none of which is; what the engine was to be loaded with; how it was to be served."""
    seen = SimpleNamespace(models=[], engine={}, served=[])

    def load(options, model, **more):
        seen.engine = options.settings | more
        return "the model"

    monkeypatch.setattr(sys.modules[command.__module__], "open_model", lambda name, form: seen.models.append(name))
    monkeypatch.setattr(EngineOptions, "load", load)
    monkeypatch.setattr(run, "serve", lambda *given: seen.served.append(given))
    return seen


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--port", "70000"], "70000"),
        (["--port", "-1"], "-1"),
        (["--host", "no.such.host.invalid"], "no.such.host.invalid"),
        (["--host", "é" * 100], "cannot be listened on"),
        (["--host", "203.0.113.1"], "203.0.113.1"),  # of a network that is for examples only, so of no machine
        (["--api-key", ""], "api_key"),
        (["--api-key", "two words"], "api_key"),
        (["--api-key", "@"], "--api-key"),
        (["--api-key", "@no-such-file"], "no-such-file"),
        (["--model-name", ""], "model_name"),
        (["--max-queue", "-1"], "max_queue"),
        (["--max-sequences", "0"], "max_sequences"),
        (["--max-body-bytes", "0"], "max_body_bytes"),
        (["--request-timeout", "nan"], "request_timeout"),
        (["--request-timeout", "0"], "request_timeout"),
        (["--shutdown-grace", "inf"], "shutdown_grace"),
    ],
)
def test_wrong_options_end_it_with_one_line_and_no_model(opened, arguments, named):
    done = jaxinfer("serve", "--port", "0", *arguments)
    assert (done.exit_code, opened.models, opened.served) == (2, [], [])
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert named in line


def test_a_port_that_is_in_use(opened):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = jaxinfer("serve", "--port", port)
    assert (done.exit_code, opened.models) == (2, [])
    [line] = done.stderr.splitlines()
    assert line.startswith(f"error: 127.0.0.1:{port} cannot be listened on")


def test_the_options_reach_the_engine_and_the_server(opened, tmp_path):
    (tmp_path / "key").write_text("secret\n")
    words = "--model m --port 0 --max-queue 7 --max-sequences 5 --max-body-bytes 99 --request-timeout 3 --log-prompts"
    more = ["--shutdown-grace", "2", "--max-chunk-tokens", "64", "--max-num-seqs", "3", "--api-key", f"@{tmp_path}/key"]
    assert jaxinfer("serve", *words.split(), *more).exit_code == 0
    [(llm, settings, listening)] = opened.served
    listening.close()
    assert (opened.models, llm) == (["m"], "the model")
    assert (opened.engine["max_chunk_tokens"], opened.engine["max_num_seqs"]) == (64, 3)
    assert settings == ServerSettings(
        model_name="m",
        api_key="secret",
        max_queue=7,
        max_sequences=5,
        max_body_bytes=99,
        request_timeout=3.0,
        shutdown_grace=2.0,
        log_prompts=True,
    )


def test_the_key_is_in_no_error(opened):
    done = jaxinfer("serve", "--port", "0", "--api-key", "two words")
    assert "two words" not in done.stderr


@pytest.mark.slow
def test_a_real_model_is_served_until_a_signal_comes(shared_data):
    sizes = "--port 0 --max-num-seqs 1 --max-chunk-tokens 16 --max-model-len 64 --model-name stories"
    arguments = ["serve", "--model", str(shared_data / "stories260K-hf"), *sizes.split()]
    command_line = [sys.executable, "-c", installed_command(), *arguments]
    body = {"model": "stories", "prompt": "Once upon a time", "max_tokens": 30, "temperature": 0}
    with subprocess.Popen(command_line, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = None
            while found is None and (line := process.stderr.readline()):
                found = re.search(r"serving stories at (http://\S+)$", line.rstrip())
            assert found
            transport = httpx.HTTPTransport(retries=5)
            with httpx.Client(base_url=found[1], timeout=30, transport=transport) as client:
                whole = client.post("/v1/completions", json=body).json()["choices"][0]["text"]
                with client.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
                    process.send_signal(signal.SIGTERM)
                    events = [line for line in answer.iter_lines() if line]
            _, log = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert events.pop() == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert whole == "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])
    assert len(whole) > 20
    assert "POST /v1/completions 200: " in log
    assert whole[:20] not in log
