"""On what and with what a measurement was made, for whoever reads it later; nothing that tells who or where."""

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

_CPU_FILE = "/proc/cpuinfo"


def environment(packages: Sequence[str]) -> dict[str, Any]:
    """Date, machine and versions of Python, this package and ``packages``."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "num_cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("jaxinfer", *packages)},
    }


def _cpu() -> str | None:
    """The name of the processor, where Linux tells it."""
    try:
        with open(_CPU_FILE, encoding="utf-8", errors="replace") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        return None
    return names[0] if names else None
