"""Forms that might harm the process are tried in another one first: see ``trial_process``.

``llguidance`` limits much of what a grammar may cost, but some of 100 characters keep it busy for ever, with ever more
memory, and some end its process. No limit of a thread holds them.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import weakref

_PROGRAM = "jaxinfer.structured_outputs.trial_process"
_SECONDS = 10.0
"""To wait for an answer. The computation has its own, smaller limit: this one is for a process that is stopped."""
_ATTEMPTS = 2


class Trials:
    """The process that tries the forms of one engine; it starts with the first, and ends with the engine's process.

    Args:
        vocab_size: V of the model.
    """

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._process: _TrialProcess | None = None

    def refusal(self, source: str) -> str | None:
        """Why a grammar cannot be held; None where it can be read.

        Raises:
            ValueError: the process did not start, or gave no answer; another time it may.
        """
        failure: Exception | None = None
        for _ in range(_ATTEMPTS):
            try:
                return self._asked(source)
            except TimeoutError as error:
                raise ValueError(f"it could not be read within {_SECONDS:g} seconds") from error
            except (OSError, EOFError, json.JSONDecodeError) as error:
                failure = error  # it was ended from outside, say; the next one may live
        raise ValueError(f"the process that tries to read it failed: {failure}") from failure

    def _asked(self, source: str) -> str | None:
        if self._process is None:
            self._process = _TrialProcess(self._vocab_size)
        try:
            return self._process.ask(source)
        except BaseException:  # Ctrl-C too: the answer that is still to come would be taken for the next one's
            self._process.end()
            self._process = None
            raise


class _TrialProcess:
    def __init__(self, vocab_size: int) -> None:
        self._connection, theirs = socket.socketpair()
        self._connection.settimeout(_SECONDS)
        with theirs:
            self.popen = subprocess.Popen(
                [sys.executable, "-P", "-m", _PROGRAM, str(vocab_size)],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
                start_new_session=True,  # Ctrl-C in a terminal is not for it, and a signal to its group is for it alone
            )
        self.end = weakref.finalize(self, _end, self.popen, self._connection)

    def ask(self, source: str) -> str | None:
        """Raises TimeoutError, EOFError or another OSError, or JSONDecodeError where the process is not well."""
        self._connection.sendall(json.dumps(source).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            received = self._connection.recv(2**16)
            if not received:
                raise EOFError("it has ended")
            answer += received
        refusal: str | None = json.loads(answer)
        return refusal


def _end(process: subprocess.Popen[bytes], connection: socket.socket) -> None:
    """With whatever it is trying."""
    connection.close()
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
