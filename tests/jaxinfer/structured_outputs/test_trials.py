"""The process that tries forms: what becomes of it, and of the answers, whatever happens to it or to its parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxinfer.structured_outputs.trial_process import cause
from jaxinfer.structured_outputs.trials import Trials

GOOD = 'start: "a"\n%llguidance {"no_forcing": true}\n'
BAD = 'start: b\n%llguidance {"no_forcing": true}\n'
HOSTILE = (
    'start: %json {"type": "integer", "multipleOf": 99991, "allOf": [{"multipleOf": 7919}, {"multipleOf": 104729}]}'
)


@pytest.fixture(scope="module")
def trials() -> Trials:
    return Trials(300)


def pid(trials: Trials) -> int:
    assert trials._process is not None
    return trials._process.popen.pid


def check(trials: Trials) -> None:
    assert trials.refusal(GOOD) is None
    assert 'unknown name: "b"' in str(trials.refusal(BAD))


def test_it_answers_each_form_and_goes_on_after_one_that_is_ended(trials):
    check(trials)
    first = pid(trials)
    assert trials.refusal(HOSTILE) == "it takes more than 1 s of computation to read"
    deep = "\n".join(["start: r0", *(f"r{i}: r{i + 1}" for i in range(20_000)), 'r20000: "a"'])
    assert trials.refusal(deep) == "it is nested too deeply"
    check(trials)
    assert pid(trials) == first


def test_a_form_gets_only_so_much_memory():
    program = f"""
from jaxinfer.structured_outputs import trial_process
trial_process.MEMORY_BYTES, trial_process.CPU_SECONDS = 100 << 20, 30
trial_process._try(trial_process.json.dumps({HOSTILE!r}), trial_process.library_tokens([b"a"]))
"""
    ended = subprocess.run([sys.executable, "-c", program], stderr=subprocess.DEVNULL, timeout=60)
    assert "memory" in cause(ended.returncode)


def test_a_grammar_may_name_any_token_of_the_model(trials):
    assert trials.refusal('start: <[299]> | "a"\n%llguidance {"no_forcing": true}\n') is None
    assert "too large" in str(trials.refusal("start: <[400]>"))


def test_a_new_process_comes_for_one_that_was_killed(trials):
    check(trials)
    killed = pid(trials)
    os.kill(killed, signal.SIGKILL)
    check(trials)
    assert pid(trials) != killed


def test_ctrl_c_while_a_form_is_tried_leaves_no_answer_behind(trials):
    """Nor is the terminal's signal for the process itself: it is of another session."""
    check(trials)
    interrupted = pid(trials)
    assert os.getsid(interrupted) == interrupted

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    usual = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            trials.refusal(HOSTILE)
    finally:
        signal.signal(signal.SIGALRM, usual)
    check(trials)
    assert has_ended(interrupted)


NOT_WELL = {
    "says nothing": ("import time; time.sleep(60)", "could not be read within 0.5 seconds"),
    "ends at once": ("", "it has ended|Broken pipe|reset by peer"),
    "ends when it is asked": ("input()", "it has ended"),
    "ends in the middle": ("print('\"no', end='', flush=True)", "it has ended|Broken pipe|reset by peer"),
    "says what it should not": ("import time; print('hello', flush=True); time.sleep(60)", "Expecting value"),
}


@pytest.mark.parametrize("name", NOT_WELL)
def test_a_process_that_is_not_well_is_an_error_of_this_form_only(tmp_path, monkeypatch, name):
    code, reason = NOT_WELL[name]
    (tmp_path / "unwell.py").write_text(code)
    trials = Trials(300)
    with monkeypatch.context() as patched:
        patched.syspath_prepend(str(tmp_path))
        patched.setattr("jaxinfer.structured_outputs.trials._PROGRAM", "unwell")
        patched.setattr("jaxinfer.structured_outputs.trials._SECONDS", 0.5)
        with pytest.raises(ValueError, match=reason):
            trials.refusal(GOOD)
    check(trials)


def test_a_process_that_cannot_be_started_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(ValueError, match="No such file"):
        Trials(300).refusal(GOOD)


# The end of the parent


def has_ended(process_id: int) -> bool:
    """Waits for it; a process that nobody has asked about after its end counts as ended."""
    stat = Path(f"/proc/{process_id}/stat")
    for _ in range(100):
        try:
            if stat.read_text().rsplit(")", 1)[1].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


PARENT = f"""
import os, sys, time
from jaxinfer.structured_outputs.trials import Trials
trials = Trials(300)
refusal = trials.refusal({GOOD!r})
os.write(int(sys.argv[1]), f"{{trials._process.popen.pid}} {{refusal}}\\n".encode())
"""


def start(code: str) -> tuple[subprocess.Popen[bytes], str, str]:
    """A parent that runs ``code``; of its process that tries forms the id, and what it said of a good one."""
    reading, writing = os.pipe()
    parent = subprocess.Popen([sys.executable, "-c", code, str(writing)], pass_fds=[writing])
    os.close(writing)
    with os.fdopen(reading) as said:
        child, refusal = said.readline().split()
    return parent, child, refusal


def test_it_ends_with_its_parent_even_where_that_is_killed():
    parent, child, refusal = start(PARENT + "time.sleep(60)")
    assert refusal == "None"
    assert Path(f"/proc/{child}").exists()
    parent.kill()
    parent.wait()
    assert has_ended(int(child))


def test_it_ends_with_its_parent_in_the_usual_way():
    parent, child, _ = start(PARENT)
    assert parent.wait(timeout=30) == 0
    assert has_ended(int(child))


def test_it_ends_when_nobody_holds_it(trials):
    other = Trials(300)
    check(other)
    child = pid(other)
    del other
    assert has_ended(child)
    check(trials)


def test_it_does_without_the_parents_standard_streams():
    parent, child, refusal = start("import os\nfor fd in range(3): os.close(fd)\n" + PARENT)
    assert refusal == "None"
    assert parent.wait(timeout=30) == 0
    assert has_ended(int(child))
