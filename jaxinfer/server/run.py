"""From an application to a process that serves: the socket, the signals, the end.

SIGTERM and Ctrl-C end it in order: nobody is let in any more, running calls have ``shutdown_grace`` seconds to come to
their end, what still runs then is ended with an error, and the process ends with code 0. A second signal ends what runs
at once.
"""

import asyncio
import logging
import os
import socket
import sys
from types import FrameType

import uvicorn
from fastapi import FastAPI

from jaxinfer.llm import LLM
from jaxinfer.server.app import create_app
from jaxinfer.server.client_connection import ClientConnection
from jaxinfer.server.log_lines import log_lines
from jaxinfer.server.service import InferenceService
from jaxinfer.server.settings import ServerSettings

logger = logging.getLogger(__name__)

_SECONDS_TO_SAY_SO = 5
"""For errors of calls that were ended to reach their clients, who are left after that."""


def bind(host: str, port: int) -> socket.socket:
    """The socket to listen on, taken before the wait for the model; 0 takes any free port.

    Raises:
        ValueError: it cannot be had; says why.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except (OSError, OverflowError, UnicodeError) as error:
        raise ValueError(f"{host}:{port} cannot be listened on: {error}") from error
    return bound


def serve(llm: LLM, settings: ServerSettings, listening: socket.socket) -> None:
    """Serve until a signal ends it. Returns when all is answered or ended."""
    app = create_app(llm, settings)
    host, port = listening.getsockname()[:2]
    with log_lines(with_messages=settings.log_prompts):
        logger.info("serving %s at http://%s:%d", settings.model_name, f"[{host}]" if ":" in host else host, port)
        Server(app).run(sockets=[listening])
        logger.info("ended")
    if app.state.service.is_stuck:  # its threads would keep the process from ending
        sys.stderr.flush()
        os._exit(0)


class Server(uvicorn.Server):
    """uvicorn's, which tells the service of signals, and does not end the process by one.

    Args:
        app: as ``create_app`` makes it.
    """

    def __init__(self, app: FastAPI) -> None:
        self._service: InferenceService = app.state.service
        # Twice, since uvicorn's own end leaves errors in the log where there is nothing wrong; it is for what remains.
        patience = int(self._service.settings.shutdown_grace) + 2 * _SECONDS_TO_SAY_SO
        config = uvicorn.Config(
            app,
            http=ClientConnection,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=patience,
        )
        super().__init__(config)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins the end, a second one hastens it."""
        loop = self.servers[0].get_loop() if self.started else None
        if loop is None:
            self.should_exit = True
        elif not self.should_exit:
            self.should_exit = True
            loop.call_soon_threadsafe(self._begin_end)
        else:
            loop.call_soon_threadsafe(self._end_calls)

    def _begin_end(self) -> None:
        grace = self._service.settings.shutdown_grace
        logger.info("ending: running calls have %g seconds; a second signal ends them at once", grace)
        self._service.refuse_calls()
        asyncio.get_running_loop().call_later(grace, self._end_calls)

    def _end_calls(self) -> None:
        self._service.end_calls()
        asyncio.get_running_loop().call_later(_SECONDS_TO_SAY_SO, self._leave_clients)

    def _leave_clients(self) -> None:
        """Whoever has not read the end by now does not read."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, ClientConnection):
                connection.transport.abort()
