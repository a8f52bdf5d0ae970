"""The program that ``trials`` starts: it tries forms, each in a process of its own that has limits and may die of them.

It reads one form a line, a grammar as JSON, and writes one line for each, why it cannot be held as JSON, or null. It
ends where its input does, so with the engine's process however that ends. Its memory is its own: a form that was tried
leaves nothing behind, since the process that tries it is forked from one that has read no form.
"""

import json
import os
import resource
import signal
import sys

from llguidance import LLTokenizer

from jaxinfer.structured_outputs.compilation import STACK_BYTES, compiled
from jaxinfer.structured_outputs.library_tokens import library_tokens

MEMORY_BYTES = 2**30
"""Of addresses, some 30 MiB of which Python and the library take, and 48 MiB the stack."""
CPU_SECONDS = 1
_STACK_BYTES = STACK_BYTES * 3 // 4  # what fits here fits there, where a call or two more may lie below

_CAUSES: dict[int, str] = {
    signal.SIGXCPU: f"it takes more than {CPU_SECONDS} s of computation to read",
    signal.SIGABRT: f"it takes more than {MEMORY_BYTES >> 20} MiB of memory to read",
    signal.SIGSEGV: "it is nested too deeply",
}
"""Why a trial ended; Rust aborts where it gets no memory, and an overflow of the stack is a segmentation fault."""


def main() -> None:
    """``sys.argv[1]`` is the number of the model's tokens, which a grammar may name by their ids."""
    size = int(sys.argv[1])
    tokens = library_tokens([bytes([byte]) for byte in range(256)] + [b""] * (size - 256))
    for line in sys.stdin.buffer:
        trial = os.fork()
        if trial == 0:
            _try(line, tokens)
        _, status = os.waitpid(trial, 0)
        if status != 0:
            _answer(cause(os.waitstatus_to_exitcode(status)))


def _try(line: bytes, tokens: LLTokenizer) -> None:
    """Answers and ends this process."""
    status = 1
    try:
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        for kind, most in (
            (resource.RLIMIT_CPU, CPU_SECONDS),
            (resource.RLIMIT_AS, MEMORY_BYTES),
            (resource.RLIMIT_CORE, 0),
        ):
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
        _answer(_refusal(json.loads(line), tokens))
        status = 0
    finally:
        os._exit(status)


def _refusal(source: str, tokens: LLTokenizer) -> str | None:
    try:
        compiled(source, tokens, _STACK_BYTES)
    except ValueError as error:
        return str(error)
    return None


def cause(exit_code: int) -> str:
    """Why a trial ended so: a negative code is a signal's."""
    usual = f"the process that tried to read it ended with code {exit_code}"
    return _CAUSES.get(-exit_code, usual)


def _answer(refusal: str | None) -> None:
    sys.stdout.buffer.write(json.dumps(refusal).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
