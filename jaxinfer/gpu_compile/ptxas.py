"""NVIDIA's assembler, asked what a kernel needs: registers, spills, shared memory."""

import re
import subprocess
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from jaxinfer.gpu_compile.report import KernelCode

INSTALL = "pip install --no-deps jax-cuda12-plugin jax-cuda12-pjrt nvidia-cuda-nvcc-cu12"

_ENTRY = re.compile(r"\.entry\s+(?P<name>[\w$]+)\s*\(")
_SPILLS = re.compile(r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (?P<registers>\d+) registers")
_SHARED = re.compile(r"(?P<shared>\d+) bytes smem")


def kernel_name(ptx: str) -> str | None:
    """The kernel that ``ptx`` defines; None for a file of constants.

    Raises:
        ValueError: there are several.
    """
    names = _ENTRY.findall(ptx)
    if len(names) > 1:
        raise ValueError(f"one kernel per PTX file expected, got {names}")
    return names[0] if names else None


@lru_cache(maxsize=1024)
def assemble(ptx: str, architecture: str) -> KernelCode:
    """What ptxas says of the one kernel in ``ptx`` for ``architecture`` ("sm_86").

    Raises:
        ValueError: ptxas refuses it; the message holds what it said.
        ModuleNotFoundError: ptxas is not installed; the message says how to install it.
    """
    done = subprocess.run(
        [_find_ptxas(), "--verbose", f"--gpu-name={architecture}", "--output-file=/dev/null", "/dev/stdin"],
        input=ptx,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    if done.returncode:
        raise ValueError(f"ptxas refuses the kernel {kernel_name(ptx)} for {architecture}: {said.strip()}")
    return parse_verbose(said, ptx)


def parse_verbose(text: str, ptx: str) -> KernelCode:
    """Read what ``ptxas --verbose`` prints for one kernel."""
    spills, registers, shared = _SPILLS.search(text), _REGISTERS.search(text), _SHARED.search(text)
    if spills is None or registers is None:
        raise ValueError(f"not what ptxas says of a kernel: {text.strip()}")
    return KernelCode(
        registers=int(registers["registers"]),
        spill_store_bytes=int(spills["stores"]),
        spill_load_bytes=int(spills["loads"]),
        static_shared_bytes=int(shared["shared"]) if shared else 0,
        ptx=ptx,
    )


def _find_ptxas() -> Path:
    spec = find_spec("nvidia.cuda_nvcc") if find_spec("nvidia") else None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder) / "bin" / "ptxas").is_file():
            return path
    raise ModuleNotFoundError(f"ptxas is not installed: {INSTALL}")
