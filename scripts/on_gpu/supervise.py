"""A part in a process of its own, under a time limit, and what it left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from scripts.on_gpu.part import Part
from scripts.on_gpu.result import PartResult, Status, read, save
from scripts.on_gpu.settings import Settings
from scripts.on_gpu.signals import Stop, name

ROOT = Path(__file__).resolve().parents[2]
_LAST_LINES = 12
"""Of what a failed part wrote."""
_LOOK_EVERY = 0.05
"""Seconds until the next look at a part that runs."""


def supervise(part: Part, settings: Settings, out: Path, stop: Stop) -> PartResult:
    """Run the part in a new process and wait for it, ``settings.seconds`` at most.

    Args:
        part: what to run.
        settings: for it.
        out: an existing folder; ``NAME.json`` and ``NAME.log`` are written there.
        stop: ends the part.

    Returns:
        Its rows, all that it measured until its end, and how it ended.
    """
    path, log = out / f"{part.name}.json", out / f"{part.name}.log"
    path.unlink(missing_ok=True)  # of an earlier run
    begin = time.monotonic()
    code = _run(_command(replace(part, seconds=settings.seconds), settings, path), settings.seconds, log, stop)
    result = replace(read(path, part.name), seconds=time.monotonic() - begin)
    if stop.number is not None and code != 0:
        result = replace(result, status="interrupted", reason=f"{name(stop.number)} ended the check")
    elif code != 0:
        status: Status = "timed out" if code is None else "failed"
        what = f"it took more than {settings.seconds:.0f} s" if code is None else f"its exit status was {code}"
        result = replace(result, status=status, reason=f"{what}; the last lines that it wrote:\n{_tail(log)}")
    save(path, result.as_json())
    return result


def _command(part: Part, settings: Settings, path: Path) -> list[str]:
    command = [sys.executable, "-m", "scripts.on_gpu.run_part", json.dumps(asdict(part)), str(path.resolve())]
    command += ["--tiny"] if settings.tiny else []
    return command + (["--lengths", str(settings.lengths.resolve())] if settings.lengths else [])


def _run(command: list[str], seconds: float, log: Path, stop: Stop) -> int | None:
    """The exit status; None where it had to be stopped. Nothing of it is left running, whatever happens here."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
        end = time.monotonic() + seconds
        try:
            while process.poll() is None and time.monotonic() < end and stop.number is None:
                time.sleep(_LOOK_EVERY)
            return process.poll()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with what it started itself
                process.wait()


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(line for line in lines[-_LAST_LINES:]) or "(nothing)"
