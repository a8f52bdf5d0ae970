"""What the log tells of calls, and that it tells nothing of what they say unless it is asked to."""

import logging
import re

import httpx
import pytest

from jaxinfer.server.log_lines import log_lines
from tests.served_fakes import FakeModel, asked
from tests.servers import serving

SECRET = "a secret of the client"
TIME = r"\d+\.\d{3} s"


@pytest.fixture(autouse=True)
def told(caplog) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "jaxinfer.server")
    return caplog


def test_each_call_is_a_line_which_its_answer_names(told):
    body = asked([1, 2, 3], 5)
    with serving(FakeModel()) as server, httpx.Client(base_url=server.url) as client:
        answers = [
            client.post("/v1/completions", json=body | {"n": 2}),
            client.post("/v1/completions", json=body | {"stream": True}),
            client.post("/v1/completions", json=body | {"temperature": SECRET}),
            client.post("/v1/completions", json=body | {SECRET: 1}),
            client.post(f"/v1/{SECRET}%0A2026 info: forged", json=body),
            client.get("/v1/models/other"),
            client.get("/health"),  # which is asked for each second
        ]
    lines = [record.getMessage() for record in told.records]
    calls = [
        rf"POST /v1/completions 200: 3 prompt tokens; 10 output tokens; 2 length; first after {TIME}; {TIME}",
        rf"POST /v1/completions 200: 3 prompt tokens; 5 output tokens; 1 length; first after {TIME}; {TIME}",
        rf"POST /v1/completions 400 invalid_request_error: {TIME}",
        rf"POST /v1/completions 400 invalid_request_error: {TIME}",
        rf"POST /v1/a%20secret%20of%20the%20client%0A2026%20info:%20forged 404 invalid_request_error: {TIME}",
        rf"GET /v1/models/other 404 model_not_found: {TIME}",
    ]
    assert len(lines) == len(calls)
    by_name = {line.partition(" ")[0]: line for line in lines}  # a client may ask again before the line is written
    for answer, call in zip(answers, calls, strict=False):
        name = answer.headers["x-request-id"]
        assert re.fullmatch(f"{name} {call}", by_name[name]), by_name[name]
    assert SECRET not in told.text


def test_a_client_that_leaves_and_a_fault(told, monkeypatch, capsys):
    model = FakeModel()
    model.seconds_per_step = 0.01

    def fail(*given, **more):
        raise RuntimeError(SECRET) from KeyError(SECRET)

    with serving(model) as server, log_lines(with_messages=False), httpx.Client(base_url=server.url) as client:
        with client.stream("POST", "/v1/completions", json=asked([1, 2, 3], 2000, stream=True)) as answer:
            next(answer.iter_lines())
        model.wait_until_idle()
        monkeypatch.setattr(server.llm.renderer, "render", fail)
        assert client.post("/v1/completions", json=asked([1], 1)).status_code == 500
    log = capsys.readouterr().err
    assert re.search(r"POST /v1/completions client left: 3 prompt tokens; \d+ output tokens; 1 unfinished;", log)
    assert re.search(r"error: req-\w+ failed\nRuntimeError\n(?s:.*)in fail\n(?s:.*)KeyError\n", log)
    assert re.search(rf"POST /v1/completions 500 internal_error: {TIME}", log)
    assert SECRET not in log
    assert "Exception in ASGI application" not in log


def test_what_is_asked_and_answered_is_told_where_that_is_wanted(told):
    with serving(FakeModel(), log_prompts=True) as server, httpx.Client(base_url=server.url) as client:
        client.post("/v1/completions", json=asked([101, 102], 2))
        client.post("/v1/completions", json=asked([101], 2, temperature=SECRET))
    assert "prompt: [101, 102]" in told.text
    assert "answer: ''" in told.text
    assert f"error: temperature is '{SECRET}'" in told.text


def test_a_line_is_one_line_and_an_error_says_what_it_says_where_that_is_wanted(capsys):
    with log_lines(with_messages=True):
        try:
            raise ValueError("it\x1b[31m\nsays")
        except ValueError as error:
            logging.getLogger("jaxinfer.anything").error("a\nb\x07", exc_info=error)
        logging.getLogger("uvicorn.error").warning("from below")
    logging.getLogger("jaxinfer.anything").error("afterwards")
    first, kind, *_, last = capsys.readouterr().err.splitlines()
    assert first.endswith(r" error: a\nb\x07")
    assert kind == r"ValueError: it\x1b[31m\nsays"
    assert last.endswith(" warning: from below")
