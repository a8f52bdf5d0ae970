"""What is entered in a conversation: messages and commands, their lines from a pipe, and Ctrl-C meanwhile."""

import signal
import sys
from collections.abc import Iterator
from io import BytesIO
from types import SimpleNamespace

import pytest

from jaxinfer.cli.chat_entries import Entry, UnreadableEntry, line_reader, read_entry
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
        (["/no-command"], Entry("/no-command")),
        (["/usr/bin is what?"], Entry("/usr/bin is what?")),
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
    read_line = line_reader()
    assert [read_line("> ") for _ in range(3)] == ["caf\u00e9", "", "b\u2028c"]
    with pytest.raises(UnreadableEntry, match="byte 2 is 0xff"):
        read_line("> ")
    assert read_line("> ") == "last"
    with pytest.raises(EOFError):
        read_line("> ")


def test_with_answers_in_a_file_the_sign_goes_to_stderr(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True, buffer=BytesIO(b"Hello\n")))
    assert line_reader()("> ") == "Hello"
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


def test_ctrl_c_stays_ignored_where_it_was():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with CtrlC().installed():
            press()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
