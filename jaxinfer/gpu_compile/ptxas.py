"""NVIDIA's assembler, asked what a kernel needs: registers, spills, shared memory.

XLA runs it too, or a library of it, but does not say what came out.
"""

import re
import subprocess
from functools import lru_cache

from jaxinfer.gpu_compile.report import KernelCode
from jaxinfer.gpu_compile.toolchain import find_ptxas

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
_SHARED = re.compile(r"(\d+) bytes smem")


def kernel_name(ptx: str) -> str | None:
    """The kernel that ``ptx`` defines; None for a file of constants.

    Raises:
        ValueError: there are several, so that no one kernel could be held to what ptxas says.
    """
    names = _ENTRY.findall(ptx)
    if len(names) > 1:
        raise ValueError(f"one kernel expected in a PTX file, got {names}")
    return names[0] if names else None


# Programs share kernels: those of the same layer at the same size, compiled again with another sampler, say.
@lru_cache(maxsize=1024)
def assemble(ptx: str, architecture: str) -> KernelCode:
    """What ptxas says of the one kernel in ``ptx`` for ``architecture`` ("sm_86").

    Raises:
        ValueError: ptxas refuses it; the message holds what it said.
        ModuleNotFoundError: ptxas is not installed; the message says how to install it.
    """
    done = subprocess.run(
        [find_ptxas(), "--verbose", f"--gpu-name={architecture}", "--output-file=/dev/null", "/dev/stdin"],
        input=ptx,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    if done.returncode:
        raise ValueError(f"ptxas refuses the kernel {kernel_name(ptx)} for {architecture}: {said.strip()}")
    return parse_verbose(said, ptx)


def parse_verbose(said: str, ptx: str) -> KernelCode:
    """Read what ``ptxas --verbose`` prints for the one kernel in ``ptx``.

    Raises:
        ValueError: it is nothing of the kind.
    """
    registers, spills, shared = (pattern.search(said) for pattern in (_REGISTERS, _SPILLS, _SHARED))
    if registers is None or spills is None:
        raise ValueError(f"registers and spills of a kernel expected from ptxas, got {said!r}")
    return KernelCode(
        registers=int(registers[1]),
        spill_store_bytes=int(spills["stores"]),
        spill_load_bytes=int(spills["loads"]),
        static_shared_bytes=int(shared[1]) if shared else 0,
        ptx=ptx,
    )
