"""How a server in a process of its own ends: in order, in time, and with code 0, whoever is connected."""

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.command_line import ROOT
from tests.served_fakes import asked, events, expected, post, token_ids

# The real server over the fake model, which needs no time to load.
CODE = """
import sys
from jaxinfer.server.run import bind, serve
from jaxinfer.server.settings import ServerSettings
from tests.served_fakes import FakeModel

model = FakeModel()
model.seconds_per_step = 0.01
if sys.argv[2] == "hangs":
    import time
    model.before_step = lambda: time.sleep(60)
serve(model, ServerSettings(model_name="fake", shutdown_grace=float(sys.argv[1])), bind("127.0.0.1", 0))
"""
LONG, SHORT = asked([1, 2], 2000, stream=True), asked([1, 2], 50, stream=True)


@dataclass
class Served:
    """A server in a process."""

    process: subprocess.Popen[str]
    port: int

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def streaming(self, body: dict[str, object]) -> tuple[socket.socket, bytes]:
        """A connection on which the first event of a stream has come, and what came."""
        connection = self.connect()
        connection.sendall(post(body))
        came = b""
        while b"data: " not in came:
            came += connection.recv(4096)
        return connection, came

    def ended_after(self, began: float) -> float:
        """Seconds until it ended, which it must with code 0 and nothing wrong in its log."""
        _, log = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, log
        assert "Traceback" not in log
        assert "error: " not in log
        return time.monotonic() - began


@contextmanager
def served(grace: float, kind: str = "") -> Iterator[Served]:
    command = [sys.executable, "-c", CODE, str(grace), kind]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"at http://127\.0\.0\.1:(\d+)$", process.stderr.readline().rstrip())
            assert found, process.stderr.read()
            server = Served(process, int(found[1]))
            wait_for_connection(server)
            yield server
        finally:
            process.kill()


def wait_for_connection(server: Served) -> None:
    end = time.monotonic() + 10
    while True:
        try:
            server.connect().close()
            return
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.02)


def rest_of(connection: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_what_runs_has_the_grace_time_and_nobody_else_is_let_in(number):
    with served(grace=2) as server:
        idle = server.connect()
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n")  # and stays, for more to come
        assert idle.recv(4096).startswith(b"HTTP/1.1 200 ")
        half_asked, silent = server.connect(), server.connect()
        half_asked.sendall(b"GET /health HTTP/1.1\r\n")
        silent.sendall(post(LONG))  # and reads nothing
        long, came_of_long = server.streaming(LONG)
        short, came_of_short = server.streaming(SHORT)
        began = time.monotonic()
        server.process.send_signal(number)
        time.sleep(0.5)
        with pytest.raises(OSError):
            server.connect()
        assert token_ids(came_of_short + rest_of(short)) == expected(SHORT)
        *begun, error, done = events(came_of_long + rest_of(long))
        assert begun
        assert "shutting down" in error["error"]["message"]
        assert done == "[DONE]"
        assert 2 <= server.ended_after(began) < 20


@pytest.mark.slow
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_what_runs_at_once(second):
    with served(grace=100) as server:
        running, came = server.streaming(LONG)
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        server.process.send_signal(second)
        assert "shutting down" in events(came + rest_of(running))[-2]["error"]["message"]
        assert server.ended_after(began) < 20


@pytest.mark.slow
def test_an_idle_server_ends_at_once():
    with served(grace=100) as server:
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.ended_after(began) < 20


@pytest.mark.slow
def test_a_step_that_hangs_does_not_keep_the_process():
    with served(grace=0.2, kind="hangs") as server:
        waiting = server.connect()
        waiting.sendall(post(LONG))
        time.sleep(0.3)
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert "shutting down" in events(rest_of(waiting))[-2]["error"]["message"]
        assert server.ended_after(began) < 20
