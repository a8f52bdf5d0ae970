"""kill -9 at any moment of a conversion: what lies at its destination loads whole, or is refused."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from checkpoints import open_checkpoint
from tests.checkpoints.native.models import BFLOAT16, INT4, INT8, assert_equal_weights, drawn, write_native

WRITERS = """
import os, signal, sys, time
from pathlib import Path
from tests.checkpoints.native.models import INT4, drawn, write_native

def slowly():
    for weight in drawn(INT4):
        time.sleep(0.01)
        yield weight

for line in sys.stdin:
    seconds, folder = line.rstrip().split(" ", 1)
    start = time.monotonic()
    if (writer := os.fork()) == 0:
        write_native(Path(folder), weights=slowly(), overwrite=True)
        os._exit(0)
    if seconds != "never":
        time.sleep(float(seconds))
        os.kill(writer, signal.SIGKILL)  # nobody has waited for it yet, so this is still its number
    os.waitpid(writer, 0)
    print(time.monotonic() - start, flush=True)
"""
"""A process that has imported all, and no more, so that each writer, a copy of it, begins at once."""


@contextmanager
def started_writers() -> Iterator[tuple[IO[str], IO[str]]]:
    command = [sys.executable, "-c", WRITERS]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        yield process.stdin, process.stdout
        process.stdin.close()
    assert process.returncode == 0


def formats_of(folder: Path) -> set[object]:
    """Of what loads whole; empty where nothing lies there, which is refused."""
    if not folder.exists():
        with pytest.raises(ValueError, match="no model here"):
            open_checkpoint(folder)
        return set()
    checkpoint = open_checkpoint(folder)
    [quantization] = set(checkpoint.stored.values())
    assert_equal_weights(checkpoint.weights(BFLOAT16, checkpoint.stored), drawn(quantization))
    return {quantization}


@pytest.mark.parametrize("num_kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_writer_leaves_what_loads_or_nothing(tmp_path, num_kills):
    moments = random.Random(num_kills)
    with started_writers() as (orders, answers):

        def write_killed_after(seconds: float | str, folder: Path) -> float:
            """How long the writer lived."""
            print(seconds, folder, file=orders, flush=True)
            return float(answers.readline())

        whole = write_killed_after("never", tmp_path / "whole")
        assert formats_of(tmp_path / "whole") == {INT4}
        for i in range(num_kills):
            folder = tmp_path / str(i) / "it"
            folder.parent.mkdir()
            before = set() if i % 2 else {INT8}
            if before:
                write_native(folder, INT8)
            write_killed_after(moments.uniform(0.1, 1.2) * whole, folder)
            assert formats_of(folder) in (before, {INT4})
            write_native(folder, overwrite=True)
            assert formats_of(folder) == {INT4}
            assert [path.name for path in folder.parent.iterdir()] == ["it"]
