"""The engine's loop in a thread of its own: commands go in through a queue, outputs out to the event loop.

The engine is not thread-safe, so once the thread runs nobody else adds, steps or aborts. Between two steps it takes all
commands that came; without requests it waits for one and costs nothing.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from jaxinfer.engine import Engine
from jaxinfer.outputs import RequestOutput
from jaxinfer.value_checks import shown_error

logger = logging.getLogger(__name__)

Command = Callable[[Engine], object]

_STALLED_AFTER = 120.0
"""Seconds of one step after which the thread counts as hung. On a CPU a step of a large model takes tens of them."""
_SECONDS_TO_STOP = 10.0


class EngineThread:
    """Runs one engine until it is stopped or fails.

    Args:
        engine: which nobody else uses any more.
        deliver: called in the event loop with the outputs of each step that has any.
        on_fault: called there once if the engine fails, after which it does nothing any more.

    Attributes:
        fault: what the engine failed with, or None.
    """

    def __init__(
        self,
        engine: Engine,
        deliver: Callable[[list[RequestOutput]], None],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._engine, self._deliver, self._on_fault = engine, deliver, on_fault
        self._commands = queue.SimpleQueue[Command | None]()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._step_began: float | None = None
        self.fault: BaseException | None = None

    def start(self) -> None:
        """Begin; to be called in the event loop that outputs are for."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def post(self, command: Command) -> None:
        """Have the command run between two steps; commands run in the order in which they were posted."""
        self._commands.put(command)

    def stop(self) -> bool:
        """End after the step under way; returns whether it has ended. What it was to answer is not answered."""
        self._commands.put(None)
        self._thread.join(_SECONDS_TO_STOP)
        return not self._thread.is_alive()

    @property
    def problem(self) -> str | None:
        """Why the engine cannot answer; None while it can."""
        if self.fault is not None:
            return f"the engine has failed: {type(self.fault).__name__}"
        if not self._thread.is_alive():
            return "the engine does not run"
        began = self._step_began
        if began is not None and time.monotonic() - began > _STALLED_AFTER:
            return f"the engine has been in one step for more than {_STALLED_AFTER:g} seconds"
        return None

    def _run(self) -> None:
        try:
            while self._obey():
                self._step_began = time.monotonic()
                outputs = self._engine.step()
                self._step_began = None
                if outputs:
                    self._tell(self._deliver, outputs)
        except BaseException as fault:
            self.fault = fault
            # It knows only ids, so what it says quotes nobody.
            logger.critical("the engine has failed: %s; calls are refused from now on", _said(fault), exc_info=fault)
            self._tell(self._on_fault, fault)

    def _obey(self) -> bool:
        """Run all commands that are there, waiting for one while there is nothing to do; False: end."""
        while True:
            try:
                command = self._commands.get(block=not self._engine.has_unfinished)
            except queue.Empty:
                return True
            if command is None:
                return False
            command(self._engine)

    def _tell(self, told: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(told, *arguments)
        except RuntimeError:  # the loop has ended, and nobody is there to be told
            logger.debug("the event loop has ended before the engine")


def _said(fault: BaseException) -> str:
    return shown_error(fault) if isinstance(fault, Exception) else type(fault).__name__
