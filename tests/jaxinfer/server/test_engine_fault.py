"""An engine that fails, or hangs: whoever waits is told, health tells the truth, and the server still ends."""

import threading
import time

import httpx
import pytest

from jaxinfer.server import engine_thread
from tests.served_fakes import FakeModel, asked, events, expected
from tests.servers import serving


def test_a_fault_ends_all_calls_with_a_reason(caplog):
    model = FakeModel()
    model.seconds_per_step = 0.01
    answers: dict[bool, httpx.Response] = {}

    def ask(url: str, stream: bool) -> None:
        answers[stream] = httpx.post(f"{url}/v1/completions", json=asked([1, 2], 2000, stream=stream), timeout=10)

    def fail() -> None:
        raise RuntimeError("the device is gone")

    with serving(model) as server:
        clients = [threading.Thread(target=ask, args=(server.url, stream)) for stream in (False, True)]
        for client in clients:
            client.start()
        while model.engine.scheduler.num_running < 2:
            time.sleep(0.001)
        time.sleep(0.1)
        model.before_step = fail
        for client in clients:
            client.join(5)
        later = httpx.post(f"{server.url}/v1/completions", json=asked([1], 1))
        health = httpx.get(f"{server.url}/health")
        assert server.service._num_sequences == 0
    assert answers[False].status_code == 500
    assert "the engine has failed (RuntimeError)" in answers[False].json()["error"]["message"]
    *begun, error, done = events(answers[True].content)
    assert begun
    assert "the engine has failed (RuntimeError)" in error["error"]["message"]
    assert done == "[DONE]"
    for answer in (later, health):
        assert answer.status_code == 503
        assert "the engine has failed" in answer.json()["error"]["message"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"] == [
        "the engine has failed: the device is gone; calls are refused from now on"
    ]


def test_health_tells_of_a_step_that_hangs_and_of_its_end(monkeypatch):
    monkeypatch.setattr(engine_thread, "_STALLED_AFTER", 0.1)
    model, may_go_on = FakeModel(), threading.Event()
    body = asked([1, 2], 5)
    with serving(model) as server, httpx.Client(base_url=server.url, timeout=10) as client:
        assert client.get("/health").status_code == 200
        model.before_step = lambda: may_go_on.wait(5) and None
        answers = []
        hanging = threading.Thread(target=lambda: answers.append(client.post("/v1/completions", json=body)))
        hanging.start()
        time.sleep(0.3)
        health = httpx.get(f"{server.url}/health")
        assert (health.status_code, "in one step" in health.json()["error"]["message"]) == (503, True)
        may_go_on.set()
        hanging.join(5)
        assert client.get("/health").status_code == 200
    assert answers[0].json()["choices"][0]["token_ids"] == expected(body)


@pytest.mark.parametrize("text", ["", "x" * 5000])
def test_a_request_that_cannot_go_on_ends_alone(text, monkeypatch):
    model = FakeModel()
    output = model.engine._output

    def break_off(tracked):
        if tracked.shown_prompt_ids == [7]:
            model.engine._fail(tracked.answers[0], ValueError(text))
        return output(tracked)

    monkeypatch.setattr(model.engine, "_output", break_off)
    with serving(model) as server, httpx.Client(base_url=server.url, timeout=10) as client:
        whole = client.post("/v1/completions", json=asked([7], 5))
        streamed = events(client.post("/v1/completions", json=asked([7], 5, stream=True)).content)
        assert whole.status_code == 500
        assert "cannot go on" in whole.json()["error"]["message"]
        assert "cannot go on" in streamed[-2]["error"]["message"]
        good = asked([8], 5)
        assert client.post("/v1/completions", json=good).json()["choices"][0]["token_ids"] == expected(good)
        model.wait_until_idle()
