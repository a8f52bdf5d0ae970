"""What one call may ask for, and how long it may take, from its body to its last token."""

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from jaxinfer.server.settings import ServerSettings
from tests.served_fakes import FakeModel, asked, events, expected, post, token_ids
from tests.servers import RunningServer, serving

KEY = "s3cret!"
MOST_BYTES = 10_000


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    limits = {"max_queue": 4, "max_sequences": 32, "max_body_bytes": MOST_BYTES, "request_timeout": 0.4}
    with serving(FakeModel(max_num_seqs=4), api_key=KEY, **limits) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    server.llm.seconds_per_step = 0.0
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=10) as client:
        yield client
    server.llm.wait_until_idle()
    assert server.service._num_sequences == 0


def after[T](wait: Callable[[], object], work: Callable[..., T]) -> Callable[..., T]:
    """The work, which begins with a wait."""

    def waiting(*given: Any, **more: Any) -> T:
        wait()
        return work(*given, **more)

    return waiting


def error_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["message"]


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong", f"Basic {KEY}", KEY, f"Bearer {KEY}x", "Bearer é"])
def test_who_has_not_the_key_is_refused_before_anything_is_read(server, given):
    # The body that is announced never comes, and no answer could come either if it were waited for.
    head = f"POST /v1/completions HTTP/1.1\r\nHost: h\r\nAuthorization: {given}\r\nContent-Length: 9\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=5) as connection:
        connection.sendall(head.encode("latin-1"))
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"www-authenticate: bearer" in answer.lower()


def test_the_scheme_is_read_in_any_case_and_what_watches_needs_no_key(server, client):
    assert client.get("/v1/models", headers={"Authorization": f"bEARER  {KEY}"}).status_code == 200
    for path in ("/health", "/metrics"):
        assert httpx.get(f"{server.url}{path}").status_code == 200
    assert httpx.head(f"{server.url}/health").status_code == 200


def test_whatever_asks_the_model_needs_the_key(server):
    paths = httpx.get(f"{server.url}/openapi.json").json()["paths"]
    asked_for = {(method, path) for path, methods in paths.items() for method in methods}
    open_to_all = {("get", "/health"), ("get", "/metrics")}
    assert open_to_all < asked_for
    for method, path in asked_for - open_to_all:
        assert httpx.request(method.upper(), f"{server.url}{path}").status_code == 401, path


@pytest.mark.parametrize("key", ["", " ", "two words", "a\n", "clé", 7])
def test_a_key_that_no_header_carries_is_refused(key):
    with pytest.raises(ValueError, match="api_key"):
        ServerSettings(model_name="m", api_key=key)


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_large(client, announced):
    content = b"x" * (MOST_BYTES + 1)
    answer = client.post("/v1/completions", content=content if announced else iter([content]))
    assert error_of(answer) == (413, f"the body has more than {MOST_BYTES} bytes, which is the limit")


def test_a_body_that_does_not_come(server):
    content = post(asked([1], 1)).replace(b"Host", b"Authorization: Bearer " + KEY.encode() + b"\r\nHost")
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=5) as connection:
        connection.sendall(content[:-5])
        assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_more_large_bodies_at_once_than_there_is_room_for(server, client):
    content = post(b"x" * MOST_BYTES).replace(b"Host", b"Authorization: Bearer " + KEY.encode() + b"\r\nHost")
    with ExitStack() as stack:
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        connections = [stack.enter_context(socket.create_connection(address, timeout=5)) for _ in range(36)]
        for connection in connections:
            connection.sendall(content[: -MOST_BYTES // 10])
        ready, _, _ = select.select(connections, [], [], 2)
        answers = [connection.recv(4096) for connection in ready]
    assert answers
    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"retry-after: 1\r\n" in answer.lower()
    time.sleep(0.1)
    assert client.post("/v1/completions", json=asked([1], 1)).status_code == 200


@pytest.mark.parametrize(("more", "most"), [({"n": 33}, 32), ({"n": 9, "prompt": [[1]] * 2}, 8), ({"n": 10}, 8)])
def test_more_sequences_than_can_ever_wait_are_no_matter_of_a_full_queue(server, client, more, most):
    status, message = error_of(client.post("/v1/completions", json=asked([1], 1) | more))
    assert (status, f"at most {min(most, 8)} are allowed" in message) == (400, True)


def test_a_prompt_that_is_too_long(client):
    status, message = error_of(client.post("/v1/completions", json=asked([1] * 2049, 1)))
    assert (status, "2049" in message, "2048" in message) == (400, True, True)


def test_a_call_whose_time_is_over(server, client):
    server.llm.seconds_per_step = 0.02
    body = asked([1, 2, 3], 2000)
    status, message = error_of(client.post("/v1/completions", json=body))
    assert (status, "0.4 seconds" in message) == (504, True)
    streamed = client.post("/v1/completions", json=body | {"stream": True})
    *begun, error, done = events(streamed.content)
    assert (streamed.status_code, error["error"]["code"], done) == (200, "timeout", "[DONE]")
    came = [token for event in begun for token in event["choices"][0]["token_ids"]]
    assert 0 < len(came) < 100
    assert came == expected(body | {"max_tokens": len(came)})


def test_a_call_whose_time_is_over_before_it_is_prepared(server, client, monkeypatch):
    is_over = threading.Event()
    render = server.llm.renderer.render
    with monkeypatch.context() as patch:
        patch.setattr(
            server.llm.renderer, "render", lambda *given, **more: (is_over.wait(5), render(*given, **more))[1]
        )
        assert client.post("/v1/completions", json=asked([1], 1)).status_code == 504
        assert server.service._num_sequences == 0
        is_over.set()
    assert client.post("/v1/completions", json=asked([1], 1)).status_code == 200


@pytest.mark.parametrize("fault", [RuntimeError("SECRET"), RecursionError(), MemoryError(), KeyError(1)])
def test_a_fault_while_a_call_is_prepared_is_its_own(server, client, monkeypatch, fault):
    def fail(*given, **more):
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(server.llm.renderer, "render", fail)
        for stream in (False, True):
            answer = client.post("/v1/completions", json=asked([1], 1, stream=stream))
            assert answer.status_code == 500
            assert "SECRET" not in answer.text
    body = asked([1], 5)
    assert token_ids(client.post("/v1/completions", json=body).content) == expected(body)


def test_the_time_of_a_call_begins_before_it_is_prepared(server, client, monkeypatch):
    render = server.llm.renderer.render
    before = _sum_of_first_tokens(client)
    with monkeypatch.context() as patch:
        patch.setattr(
            server.llm.renderer, "render", lambda *given, **more: (time.sleep(0.2), render(*given, **more))[1]
        )
        client.post("/v1/completions", json=asked([1], 1))
    assert 0.2 <= _sum_of_first_tokens(client) - before < 0.4


def _sum_of_first_tokens(client: httpx.Client) -> float:
    [line] = [line for line in client.get("/metrics").text.splitlines() if "first_token_seconds_sum" in line]
    return float(line.split()[1])


def test_the_time_of_a_call_counts_from_its_arrival(server, client):
    """Its body takes half of it, so half is left for the answer."""
    server.llm.seconds_per_step = 0.05
    content = post(asked([1, 2], 100))
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=5) as connection:
        key = f"Authorization: Bearer {KEY}\r\n".encode()
        head, body = content.split(b"\r\n\r\n", 1)
        connection.sendall(head + b"\r\n" + key + b"\r\n")
        time.sleep(0.2)
        connection.sendall(body)
        answer = connection.recv(4096)
    assert answer.startswith(b"HTTP/1.1 504 ")
    assert 'jaxinfer_requests_total{finish_reason="timeout"}' in client.get("/metrics").text
    assert time.monotonic() - began < 0.55, "the limit is 0.4 s"


def test_what_is_tokenized_has_its_time_too(server, client, monkeypatch):
    monkeypatch.setattr("jaxinfer.server.routes.tokenization._text", lambda llm, token_ids: time.sleep(0.8))
    assert error_of(client.post("/detokenize", json={"tokens": [1]}))[0] == 504
