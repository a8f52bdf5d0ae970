"""A signal ends both scripts with one line and the shells' exit status, and leaves what was measured."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.on_gpu.supervise import ROOT

SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda each: each.name)
AS_IN_A_TERMINAL = "import signal; [signal.signal(n, signal.default_int_handler) for n in (1, 2, 15)]; "
CHECK = """
from scripts.on_gpu import check
from tests.scripts.test_gpu_check import fake
check.PARTS = fake("good"), fake("hang"), fake("crash")
raise SystemExit(check.main(["--tiny", "--out", {!r}]))
"""
TUNE = """
import runpy, sys, time
from scripts.on_gpu import tune
tune.product_cases = lambda *arguments: (print("tuning", flush=True), time.sleep(600))
sys.argv[1:] = ["--tiny", "--operations", "quantized_matmul", "--out", {!r}]
runpy.run_path("scripts/tune_kernels.py", run_name="__main__")
"""


def start(program: str, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", AS_IN_A_TERMINAL + program.format(str(out))]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@SIGNALS
def test_a_signal_ends_the_check_and_the_report_has_what_was_measured(number: signal.Signals, tmp_path: Path):
    process, path = start(CHECK, tmp_path), tmp_path / "hang.log"
    try:
        wait_for(lambda: path.is_file() and "waiting" in path.read_text())
        child = int(path.read_text().split()[1])
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert errors.splitlines() == [f"{number.name}: interrupted; see {tmp_path / 'gpu-check.md'}"]
    assert not is_alive(child)
    good, hang, crash = json.loads((tmp_path / "gpu-check.json").read_text())
    assert (good["status"], hang["status"], crash["status"]) == ("ok", "interrupted", "not run")
    assert hang["rows"][0]["values"] == {"name": "before the hang"}
    page = (tmp_path / "gpu-check.md").read_text()
    assert "| before the hang |" in page and f"{number.name} ended the check" in page
    assert json.loads((tmp_path / "hang.json").read_text()) == hang


@SIGNALS
def test_a_signal_ends_the_tuning(number: signal.Signals, tmp_path: Path):
    process = start(TUNE, tmp_path)
    try:
        assert process.stdout is not None and process.stdout.readline() == "tuning\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert errors == f"{number.name}: interrupted; the tables have what was tuned until now\n"
