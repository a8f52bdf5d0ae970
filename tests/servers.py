"""A real server on a free port of this machine, in a thread of the test's process."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jaxinfer.llm import LLM
from jaxinfer.server.app import create_app
from jaxinfer.server.run import Server
from jaxinfer.server.service import InferenceService
from jaxinfer.server.settings import ServerSettings

MODEL = "stories"


@dataclass(frozen=True)
class RunningServer:
    """Where it is, and what it runs."""

    url: str
    llm: LLM
    service: InferenceService


@contextmanager
def serving(llm: LLM, **settings: Any) -> Iterator[RunningServer]:
    """A server of ``llm``, which nobody else may use until it ends."""
    app = create_app(llm, ServerSettings(**({"model_name": MODEL} | settings)))
    server = Server(app)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        try:
            yield RunningServer(f"http://127.0.0.1:{listening.getsockname()[1]}", llm, app.state.service)
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive(), "the server did not end"
