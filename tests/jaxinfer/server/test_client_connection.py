"""Connections on which nothing happens are given up, and only those."""

import asyncio
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from jaxinfer.server import client_connection
from jaxinfer.server.client_connection import ClientConnection
from tests.served_fakes import FakeModel, asked, expected, post, token_ids
from tests.servers import RunningServer, serving

HEAD = b"GET /health HTTP/1.1\r\nHost: h\r\n"


@pytest.fixture(autouse=True)
def _short_times(monkeypatch):
    monkeypatch.setattr(client_connection, "SECONDS_TO_ASK", 0.3)
    monkeypatch.setattr(client_connection, "SECONDS_TO_READ", 0.2)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serving(FakeModel()) as running:
        yield running


def connect(server: RunningServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=5)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("begun", [b"", b"G", HEAD])
def test_who_does_not_ask_is_left(server, begun):
    with connect(server) as connection:
        connection.sendall(begun)
        began = time.monotonic()
        assert is_closed(connection)
        assert time.monotonic() - began < 1


def test_the_second_request_of_a_connection_has_no_more_time(server):
    with connect(server) as connection:
        connection.sendall(HEAD + b"\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        connection.sendall(HEAD)
        time.sleep(0.1)
        connection.sendall(b"x: y\r\n")  # a line now and then gains nothing
        began = time.monotonic()
        assert is_closed(connection)
        assert time.monotonic() - began < 1


def test_an_answer_may_take_longer_than_a_question(server):
    server.llm.seconds_per_step = 0.02
    body = asked([1, 2], 40)
    with connect(server) as connection:
        connection.sendall(post(body))
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
    assert token_ids(answer.partition(b"\r\n\r\n")[2]) == expected(body)


@pytest.mark.parametrize("reads", [True, False])
def test_who_does_not_read_is_left(reads):
    async def run() -> list[str]:
        done: list[str] = []
        transport: Any = SimpleNamespace(
            abort=lambda: done.append("aborted"), get_extra_info=lambda name: None, is_closing=lambda: False
        )
        config = uvicorn.Config(lambda scope: None, log_config=None)
        connection = ClientConnection(config, ServerState(), {}, asyncio.get_running_loop())
        connection.connection_made(transport)
        connection.pause_writing()
        await asyncio.sleep(0.05)
        if reads:
            connection.resume_writing()
        await asyncio.sleep(0.2)
        return done

    assert asyncio.run(run()) == ([] if reads else ["aborted"])
