"""What is entered in a conversation: messages and commands, their lines from a pipe, and Ctrl-C meanwhile."""

import gc
import signal
import sys
from collections.abc import Iterator
from io import BytesIO
from types import SimpleNamespace

import pytest
import typer

from jaxinfer.cli.chat_entries import Entry, UnreadableEntry, open_stdin, read_entry
from jaxinfer.cli.ctrl_c import CtrlC
from tests.conversations import lines, press


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["Hello there"], Entry("Hello there")),
        (["  indented "], Entry("  indented ")),
        ([""], Entry("")),
        (["/help"], Entry("", "help")),
        ([" /undo  "], Entry("", "undo")),
        (["/system  Be brief. "], Entry("Be brief.", "system")),
        (["/Help"], Entry("", "help")),
        (["/SYSTEM Be LOUD."], Entry("Be LOUD.", "system")),
        (["/no-command"], Entry("", "no-command")),
        (["/etc is what?"], Entry("is what?", "etc")),
        (["/usr/bin is what?"], Entry("/usr/bin is what?")),
        (["/etc/"], Entry("/etc/")),
        (["/etc."], Entry("/etc.")),
        (["/42"], Entry("/42")),
        (["/-"], Entry("/-")),
        (["/\u00e9tat"], Entry("/\u00e9tat")),
        (["/"], Entry("/")),
        (["//help"], Entry("//help")),
        (["/ 2"], Entry("/ 2")),
        (["6 /help"], Entry("6 /help")),
        (['"""one', "", "  two", 'three"""'], Entry("one\n\n  two\nthree")),
        (['"""', "one", '"""  '], Entry("one")),
        (['"""/help"""'], Entry("/help")),
        (['"""pasted', 'together"""'], Entry("pasted\ntogether")),
        (['"""pasted\ntogether"""'], Entry("pasted\ntogether")),
        (['""""""'], Entry("")),
    ],
)
def test_what_is_entered_is_a_message_or_a_command(given, expected):
    assert read_entry(lines(*given)) == expected


def test_a_message_that_has_no_end_is_told_and_a_missing_one_is_the_end():
    with pytest.raises(UnreadableEntry, match='""" ends it'):
        read_entry(lines('"""one', "two"))
    with pytest.raises(EOFError):
        read_entry(lines())


def test_lines_of_a_pipe_lose_their_ends_and_one_that_is_not_utf8_is_named(monkeypatch):
    raw = "caf\u00e9\r\n\nb\u2028c\n".encode() + b"ok\xff\n" + b"last"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False, buffer=BytesIO(raw)))
    read_line = open_stdin().read
    assert [read_line("> ") for _ in range(3)] == ["caf\u00e9", "", "b\u2028c"]
    with pytest.raises(UnreadableEntry, match="byte 2 is 0xff"):
        read_line("> ")
    assert read_line("> ") == "last"
    with pytest.raises(EOFError):
        read_line("> ")


def test_a_byte_order_mark_is_no_part_of_the_first_line(monkeypatch):
    """PowerShell writes one into a pipe. Anywhere else these bytes are a character of the text."""
    raw = b"\xef\xbb\xbfok\xff\n\xef\xbb\xbf/help\n"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False, buffer=BytesIO(raw)))
    read_line = open_stdin().read
    with pytest.raises(UnreadableEntry, match="byte 5 is 0xff"):
        read_line("> ")
    assert read_line("> ") == "\ufeff/help"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False, buffer=BytesIO(b"\xef\xbb\xbf/help\n")))
    assert read_entry(open_stdin().read) == Entry("", "help")


@pytest.mark.parametrize(("stdin", "stdout"), [(True, True), (True, False), (False, True), (False, False)])
def test_lines_are_typed_where_stdin_is_a_terminal(stdin, stdout, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: stdin, buffer=BytesIO()))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: stdout))
    assert open_stdin().typed == stdin


def test_with_answers_in_a_file_the_sign_goes_to_stderr(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True, buffer=BytesIO(b"Hello\n")))
    assert open_stdin().read("> ") == "Hello"
    assert capsys.readouterr() == ("", "> ")


# ---- Ctrl-C ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ctrl_c() -> Iterator[CtrlC]:
    before, installed = signal.getsignal(signal.SIGINT), CtrlC()
    with installed.installed():
        yield installed
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_ends_a_wait_and_is_then_forgotten(ctrl_c):
    with pytest.raises(KeyboardInterrupt):
        ctrl_c.interruptible(press)
    assert ctrl_c.interruptible(lambda: 7) == 7


def test_a_second_ctrl_c_does_not_disturb_what_tidies_after_the_first(ctrl_c):
    tidied = []

    def wait():
        try:
            press()
        finally:
            press()
            tidied.append(True)

    with pytest.raises(KeyboardInterrupt):
        ctrl_c.interruptible(wait)
    assert tidied == [True]
    assert ctrl_c.interruptible(lambda: 7) == 7


def test_two_at_once_that_python_makes_an_error_of_its_own_of_are_one(ctrl_c):
    def wait():
        try:
            press()
        except KeyboardInterrupt as error:
            raise SystemError("_take returned a result with an exception set") from error

    with pytest.raises(KeyboardInterrupt):
        ctrl_c.interruptible(wait)
    assert ctrl_c.interruptible(lambda: 7) == 7


def test_any_other_error_of_pythons_own_is_passed_on(ctrl_c):
    def wait():
        raise SystemError("a fault") from ValueError()

    with pytest.raises(SystemError, match="a fault"):
        ctrl_c.interruptible(wait)


def test_ctrl_c_between_two_waits_ends_the_next_and_so_does_one_whose_exception_was_dropped(ctrl_c):
    def drop():
        try:
            press()
        except KeyboardInterrupt:
            return 7
        raise AssertionError("there was no exception to drop")

    press()
    with pytest.raises(KeyboardInterrupt):
        ctrl_c.interruptible(lambda: 7)
    assert ctrl_c.interruptible(drop) == 7
    with pytest.raises(KeyboardInterrupt):
        ctrl_c.interruptible(lambda: 7)


def test_an_exception_that_the_garbage_collector_drops_is_not_told_if_it_is_ctrl_cs(monkeypatch):
    """Where pytest's own hook would make warnings of them, this one remembers them."""
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: told.append(dropped.exc_type))
    hook = sys.unraisablehook
    presses = [press, lambda: 1 / 0]

    def on_collection(phase, info):
        if phase == "start" and presses:
            presses.pop(0)()

    ctrl_c = CtrlC()
    gc.callbacks.append(on_collection)
    try:
        with ctrl_c.installed():
            ctrl_c.interruptible(gc.collect)
            gc.collect()
            with pytest.raises(KeyboardInterrupt):
                ctrl_c.interruptible(lambda: 7)
    finally:
        gc.callbacks.remove(on_collection)
    assert told == [ZeroDivisionError]
    assert sys.unraisablehook is hook


def test_ctrl_c_stays_ignored_where_it_was():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with CtrlC().installed():
            press()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_stdin_that_cannot_be_read_ends_it_in_one_line(tmp_path, monkeypatch, capsys):
    with (tmp_path / "file").open("w") as for_writing, open(for_writing.fileno(), "rb", closefd=False) as stream:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream, isatty=lambda: False))
        with pytest.raises(typer.Exit) as ended:
            open_stdin().read("> ")
    assert (ended.value.exit_code, capsys.readouterr().err) == (2, "error: stdin cannot be read: Bad file descriptor\n")
