"""The command line for tests: in this process, in one of its own, and under a shell."""

import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jaxinfer.cli import app

ROOT = Path(__file__).resolve().parents[1]
FULL_DISK = "error: stdout cannot be written: No space left on device\n"
needs_full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")


def jaxinfer(*arguments, stdin=None):
    """One run in this process."""
    return CliRunner().invoke(app, [*map(str, arguments)], input=stdin)


def process(code, **options):
    """A fresh interpreter that buffers its output as it does for users, whatever the test run has set."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | options.pop("env", {})
    return subprocess.Popen([sys.executable, "-c", code], text=True, env=env, **options)


def installed_command():
    """The code of the installed command, as pyproject.toml defines it."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        module, name = tomllib.load(file)["project"]["scripts"]["jaxinfer"].split(":")
    return f"from {module} import {name}; {name}()"


def shell(code, arguments, redirections=""):
    """One run under a shell, which can close a stream or give it a file that takes nothing."""
    words = shlex.join([sys.executable, "-c", code, *map(str, arguments)])
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    line = f"{words} {redirections}"
    return subprocess.run(["/bin/sh", "-c", line], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)


def end_of(done):
    return done.returncode, done.stdout, done.stderr
