"""The program as a whole: its streams, its end, and Ctrl-C."""

import json
import logging
import signal
import subprocess
import sys
import time
from importlib.metadata import version

import pytest

from jaxinfer.cli.exits import shown_warnings
from tests.command_line import (
    FULL_DISK,
    ROOT,
    end_of,
    installed_command,
    jaxinfer,
    needs_full_disk,
    process,
    shell,
)


@pytest.fixture(scope="module")
def script():
    return installed_command()


def test_version():
    assert jaxinfer("--version").stdout == f"jaxinfer {version('jaxinfer')}\n"


def test_what_takes_long_to_import_is_imported_only_where_it_is_needed():
    lines = ["--help", "generate --help", "chat --help", "perplexity --help", "info smollm2-135m", "models"]
    code = (
        "import sys; from jaxinfer.cli import app\n"
        "for part in ('jax', 'jaxinfer.tokenizers', 'gguf', 'llguidance', 'huggingface_hub'):\n"
        "    assert part not in sys.modules, part\n"
        f"for line in {lines}:\n"
        "    app(line.split(), standalone_mode=False); assert 'jax' not in sys.modules, line"
    )
    running = process(code, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, stderr = running.communicate(timeout=60)
    assert running.returncode == 0, stderr


def test_a_warning_is_in_the_log_when_it_is_given(tmp_path):
    """Not when the program ends: a log file would show no sign of life meanwhile."""
    log = tmp_path / "log"
    code = (
        "import sys; from pathlib import Path; from jaxinfer.cli.streams import guarded_streams\n"
        f"with guarded_streams(): print('warning: slow', file=sys.stderr); print(Path({str(log)!r}).read_text())"
    )
    with log.open("w") as file:
        running = process(code, stdout=subprocess.PIPE, stderr=file)
        stdout, _ = running.communicate(timeout=60)
    assert stdout == "warning: slow\n\n"


PRESET = ["info", "mistral-7b-v0.1"]


@needs_full_disk
@pytest.mark.parametrize("arguments", [PRESET, ["--help"], ["--version"]])
def test_a_full_disk_under_stdout_is_one_line_and_exit_code_3(script, arguments):
    assert end_of(shell(script, arguments, ">/dev/full")) == (3, "", FULL_DISK)


@pytest.mark.parametrize("arguments", [PRESET, ["--help"]])
def test_a_closed_stdout_is_one_line_and_exit_code_3(script, arguments):
    assert end_of(shell(script, arguments, ">&-")) == (3, "", "error: stdout is closed\n")


@pytest.mark.parametrize(
    ("arguments", "exit_code"), [(["info", "no/such.gguf"], 2), (["generate", "--nope"], 2), ([*PRESET, "--json"], 0)]
)
@pytest.mark.parametrize("stderr", ["2>&-", pytest.param("2>/dev/full", marks=needs_full_disk)])
def test_what_stderr_does_not_take_goes_nowhere_and_changes_no_exit_code(script, arguments, exit_code, stderr):
    done = shell(script, arguments, stderr)
    assert (done.returncode, done.stderr) == (exit_code, "")
    if exit_code == 0:
        assert json.loads(done.stdout)["model"] == "mistral-7b-v0.1"
    else:
        assert done.stdout == ""


def test_a_closed_stdin_is_named(script):
    expected = (2, "", "error: --prompts-file is -, and stdin is closed\n")
    assert end_of(shell(script, ["generate", "--prompts-file", "-"], "<&-")) == expected


COMMAND = """
import sys
from jaxinfer.cli import app

@app.command()
def added():
    BODY

sys.argv[1:] = ["added"]
RUN
"""


@pytest.fixture
def added(script):
    """Makes the program with one more command."""
    return lambda body: COMMAND.replace("BODY", body).replace("RUN", script)


WRITE_FOR_EVER = "while True: print('word', flush=True)"
WRITE_ONCE_LATE = "sys.stdin.read(); print('word')"


def test_a_reader_that_leaves_ends_it_without_a_traceback(added):
    running = process(added(WRITE_FOR_EVER), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout.readline() == "word\n"
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait(timeout=60) == 128 + signal.SIGPIPE


def test_a_reader_that_left_before_the_last_short_text_ends_it_so_too(added):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    running = process(added(WRITE_ONCE_LATE), **pipes)
    running.stdout.close()
    running.stdin.close()
    assert running.stderr.read() == ""
    assert running.wait(timeout=60) == 128 + signal.SIGPIPE


def test_text_beyond_the_terminals_encoding_does_not_end_it(added):
    code = added("print('caf\\u00e9 \\u2603')")
    running = process(code, stdout=subprocess.PIPE, env={"PYTHONIOENCODING": "ascii"})
    stdout, _ = running.communicate(timeout=60)
    assert (running.returncode, stdout) == (0, "caf? ?\n")


def interrupted(code, *, times=1, **options):
    """How a program ends that gets SIGINT once it has said ``word``."""
    running = process(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    assert running.stdout.readline() == "word\n"
    for _ in range(times):
        running.send_signal(signal.SIGINT)
        time.sleep(0.03)
    _, stderr = running.communicate(timeout=60)
    return running.returncode, stderr


QUIET_END = (128 + signal.SIGINT, "\ninterrupted\n")


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_it_without_a_traceback(added, times):
    assert interrupted(added(WRITE_FOR_EVER), times=times) == QUIET_END


def test_ctrl_c_ends_it_where_an_exception_would_be_dropped(added):
    """jax has such a callback in the garbage collector: the program went on, with a traceback in its output."""
    body = "import gc; gc.callbacks.append(lambda *_: [print('word', flush=True) for _ in iter(int, 1)]); gc.collect()"
    assert interrupted(added(body)) == QUIET_END


def test_ctrl_c_during_its_imports_ends_it_without_a_traceback(script, tmp_path):
    """``typer``, the first import of the command line that takes a while, is replaced by one that takes for ever."""
    (tmp_path / "typer.py").write_text(WRITE_FOR_EVER)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {script}"
    assert interrupted(code) == QUIET_END


def test_ctrl_c_is_ignored_where_the_program_was_started_so(added):
    """As a shell script starts what it puts in the background."""
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)" + added(
        "print('word', flush=True); sys.stdin.read()"
    )
    running = process(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout.readline() == "word\n"
    running.send_signal(signal.SIGINT)
    assert (running.communicate(timeout=60)[1], running.returncode) == ("", 0)


def test_python_m_runs_the_same_program():
    done = subprocess.run(
        [sys.executable, "-m", "jaxinfer", "--version"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert end_of(done) == (0, f"jaxinfer {version('jaxinfer')}\n", "")


def test_warnings_of_the_project_are_lines_on_stderr_and_no_handler_stays(capsys):
    for _ in range(2):
        with shown_warnings():
            logging.getLogger("jaxinfer.loading").warning("the cache holds %d tokens", 7)
            logging.getLogger("jaxinfer.loading").info("held as floats")
            logging.getLogger("jaxinfer.engine").info("not shown")
    assert capsys.readouterr().err == "warning: the cache holds 7 tokens\nheld as floats\n" * 2
