"""``jaxinfer chat``: entries, commands and interrupts over a made-up model, then a real one at a real terminal."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from itertools import count
from pathlib import Path
from select import select
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from jaxinfer.cli import app
from jaxinfer.cli.chat_entries import Entry, UnreadableEntry, line_reader, read_entry
from jaxinfer.cli.chat_session import ChatSession
from jaxinfer.cli.conversation import Conversation, Exchange
from jaxinfer.cli.ctrl_c import CtrlC
from jaxinfer.outputs import CompletionOutput, RequestMetrics, RequestOutput, Usage
from jaxinfer.sampling_params import SamplingParams

ROOT = Path(__file__).resolve().parents[2]


def lines(*given):
    """Reads these lines, then there are no more."""
    left = iter(given)

    def read_line(sign):
        line = next(left, None)
        if line is None:
            raise EOFError
        return line

    return read_line


# ---- entries ---------------------------------------------------------------------------------------------------------


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


def press():
    os.kill(os.getpid(), signal.SIGINT)


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


# ---- a conversation with a made-up model -----------------------------------------------------------------------------


class FakeLLM:
    """Says the words it is given, one in each step, and remembers what it was asked.

    A call among the words is called when it is their turn. ``REFUSE`` in place of the words refuses the conversation.
    """

    def __init__(self, *answers):
        self.tokenizer = SimpleNamespace(can_chat=True)
        self.asked, self.params, self.open_streams = [], None, 0
        self._answers, self._times = iter(answers), map(float, count())

    def stream(self, prompts, params):
        [prompt] = prompts
        assert prompt.keys() == {"messages"}
        self.params = params
        self.asked.append([(message["role"], message["content"]) for message in prompt["messages"]])
        return self._say(next(self._answers))

    def _say(self, words):
        self.open_streams += 1
        try:
            if words is REFUSE:
                yield output_of([], "error", "its prompt is too long")
                return
            said = []
            for word in words:
                if callable(word):
                    word()
                else:
                    said.append(word)
                    yield output_of(said, None)
            yield output_of([*said, ""], "length" if LENGTH in words else "stop", delta="")
        finally:
            self.open_streams -= 1


REFUSE = object()


def LENGTH():
    """The answer ends because there is no room for more."""


def output_of(words, reason, error=None, delta=None):
    """What the engine gives once these tokens are there; of 20 prompt tokens 16 were cached."""
    delta = delta if delta is not None else "".join(words[-1:])
    completion = CompletionOutput(0, "".join(words), [*range(len(words))], reason, delta)
    metrics = None if error else RequestMetrics(100.0, 100.0, 100.5, 102.5 if reason else None, len(words), 0)
    usage = None if error else Usage(20, len(words), 16)
    return RequestOutput("0", None, [0] * 20, [completion], reason is not None, metrics, usage, error)


def talk(llm, *entries, conversation=None, params=None, ctrl_c=None):
    """A session that ran to its end."""
    session = ChatSession(llm, params or SamplingParams(), conversation or Conversation(), ctrl_c or CtrlC())
    session.run(lines(*entries))
    assert llm.open_streams == 0
    return session


def test_each_message_goes_with_all_that_was_said_before(capsys):
    llm = FakeLLM(["It", " is", " Paris."], ["Rome."])
    assert talk(llm, "Capital of France?", "", "  ", "And of Italy?").num_failed == 0
    first, answer, second = ("user", "Capital of France?"), ("assistant", "It is Paris."), ("user", "And of Italy?")
    assert llm.asked == [[first], [first, answer, second]]
    out, err = capsys.readouterr()
    assert out == "It is Paris.\nRome.\n"
    speed = "first after 0.500 s, then {} tokens per second\n"
    assert err == (
        f"20 prompt tokens (16 cached), 4 output tokens, {speed.format(1.5)}"
        f"20 prompt tokens (16 cached), 2 output tokens, {speed.format(0.5)}"
    )


def test_the_system_message_comes_first_and_can_be_changed_and_dropped(capsys):
    llm = FakeLLM(*[["Yes."]] * 3)
    talk(llm, "1", "/system Be loud.", "2", "/system", "3", conversation=Conversation("Be brief."))
    assert [asked[0] for asked in llm.asked] == [("system", "Be brief."), ("system", "Be loud."), ("user", "1")]
    assert [asked[-1] for asked in llm.asked] == [("user", "1"), ("user", "2"), ("user", "3")]


@pytest.mark.parametrize(
    ("command", "left"),
    [("/undo", [Exchange("1", "a"), Exchange("2", "b")]), ("/forget", [Exchange("2", "b"), Exchange("3", "c")])],
)
def test_the_newest_or_the_oldest_exchange_is_dropped(command, left, capsys):
    conversation = Conversation("Be brief.")
    assert talk(FakeLLM(["a"], ["b"], ["c"]), "1", "2", "3", command, conversation=conversation).num_failed == 0
    assert conversation == Conversation("Be brief.", left)
    assert capsys.readouterr().err.endswith("exchanges left: 2\n")


def test_reset_leaves_the_system_message():
    conversation = Conversation("Be brief.")
    assert talk(FakeLLM(["a"], ["b"]), "1", "2", "/reset", conversation=conversation).num_failed == 0
    assert conversation == Conversation("Be brief.", [])


@pytest.mark.parametrize(
    ("entry", "named"),
    [("/shout", "/shout"), ("/undo all", "'all'"), ("/undo", "empty"), ("/forget", "empty"), ('"""open', '"""')],
)
def test_what_cannot_be_obeyed_is_an_error_and_the_conversation_goes_on(entry, named, capsys):
    llm = FakeLLM(["Yes."])
    given = (entry,) if entry == '"""open' else (entry, "Are you there?")
    assert talk(llm, *given).num_failed == 1
    [error] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert named in error
    assert len(llm.asked) == len(given) - 1


def test_exit_leaves_and_help_names_every_command(capsys):
    llm = FakeLLM()
    assert talk(llm, "/help", "/exit", "Are you there?").num_failed == 0
    out, err = capsys.readouterr()
    assert (out, llm.asked) == ("", [])
    assert re.findall(r"^  (/\w+)", err, re.MULTILINE) == ["/help", "/exit", "/system", "/reset", "/undo", "/forget"]


def test_a_message_that_is_refused_leaves_the_conversation_as_it_was(capsys):
    llm = FakeLLM(REFUSE, ["a"], REFUSE, ["b"])
    conversation = Conversation()
    assert talk(llm, "1", "2", "3", "4", conversation=conversation).num_failed == 2
    assert conversation.exchanges == [Exchange("2", "a"), Exchange("4", "b")]
    out, err = capsys.readouterr()
    assert out == "a\nb\n"
    assert err.count("error: its prompt is too long\nthe conversation is as it was before this message") == 2
    assert err.count("/forget drops its oldest exchange") == 1  # only where there is one


def test_an_empty_answer_is_not_kept(capsys):
    conversation = Conversation()
    talk(FakeLLM([], ["\n"], ["a"]), "1", "2", "3", conversation=conversation)
    assert conversation.exchanges == [Exchange("3", "a")]
    assert capsys.readouterr().err.count("the answer is empty; the message is not kept") == 2


@pytest.mark.parametrize(("max_tokens", "named"), [(2, "cut at 2 tokens, as --max-tokens says"), (None, "/forget")])
def test_an_answer_that_was_cut_says_by_what(max_tokens, named, capsys):
    conversation = Conversation()
    talk(FakeLLM(["a", LENGTH]), "1", params=SamplingParams(max_tokens=max_tokens), conversation=conversation)
    assert named in capsys.readouterr().err
    assert conversation.exchanges == [Exchange("1", "a")]


def test_ctrl_c_stops_the_answer_and_keeps_what_was_said(ctrl_c, capsys):
    llm = FakeLLM(["Once", " upon", press, " a"], ["b"])
    conversation = Conversation()
    assert talk(llm, "1", "2", conversation=conversation, ctrl_c=ctrl_c).num_failed == 0
    assert conversation.exchanges == [Exchange("1", "Once upon"), Exchange("2", "b")]
    out, err = capsys.readouterr()
    assert out == "Once upon\nb\n"
    stopped = (
        r"stopped\n20 prompt tokens \(16 cached\), 2 output tokens, first after 0.500 s, then \d+\.\d tokens per sec"
    )
    assert re.match(stopped, err)


def test_ctrl_c_before_the_first_word_leaves_the_conversation_as_it_was(ctrl_c, capsys):
    conversation = Conversation()
    talk(FakeLLM([press, "Once"], ["b"]), "1", "2", conversation=conversation, ctrl_c=ctrl_c)
    assert conversation.exchanges == [Exchange("2", "b")]
    assert "stopped before the first word; the message is not kept" in capsys.readouterr().err


def test_ctrl_c_while_a_word_is_written_stops_the_answer_too(ctrl_c, monkeypatch):
    conversation, written = Conversation(), []

    def write(text):
        written.append(text)
        if text == " upon":
            press()

    monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=write, flush=lambda: None))
    talk(FakeLLM(["Once", " upon", " a"]), "1", conversation=conversation, ctrl_c=ctrl_c)
    assert conversation.exchanges == [Exchange("1", "Once upon")]
    assert " a" not in written


def test_ctrl_c_in_a_line_drops_it_and_says_how_to_leave(ctrl_c, capsys):
    given = lines(*"ab")

    def read_line(sign):
        if (line := given(sign)) == "a":
            press()
        return line

    llm = FakeLLM(["b"])
    ChatSession(llm, SamplingParams(), Conversation(), ctrl_c).run(read_line)
    assert llm.asked == [[("user", "b")]]
    assert capsys.readouterr().err.startswith("\nCtrl-D or /exit leaves\n")


# ---- the command -----------------------------------------------------------------------------------------------------


def jaxinfer_chat(*arguments, stdin=""):
    return CliRunner().invoke(app, ["chat", *map(str, arguments)], input=stdin)


def opens(monkeypatch, tokenizer):
    """Every model has this tokenizer, and a load of its weights fails the test."""

    def build(*arguments, **settings):
        raise AssertionError("the weights were wanted")

    monkeypatch.setattr("jaxinfer.loading.open_model", lambda model: SimpleNamespace(tokenizer=tokenizer))
    monkeypatch.setattr("jaxinfer.llm.build_engine", build)


@pytest.mark.parametrize("tokenizer", [None, SimpleNamespace(can_chat=False)])
def test_a_model_that_cannot_chat_is_refused_before_its_weights_are_read(tokenizer, monkeypatch):
    opens(monkeypatch, tokenizer)
    result = jaxinfer_chat("--model", "some-model", stdin="Hello\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch("error: model is 'some-model', which has no chat template; .*\n", result.stderr)


def test_so_is_a_system_message_that_its_template_refuses(monkeypatch):
    def encode_chat(messages):
        assert [message["role"] for message in messages] == ["system", "user"]
        raise ValueError("the chat template failed: no system message")

    opens(monkeypatch, SimpleNamespace(can_chat=True, encode_chat=encode_chat))
    result = jaxinfer_chat("--system", "Be brief.")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: the chat template failed: no system message\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--temperature", "-1"], "temperature is -1.0"),
        (["--max-tokens", "-1"], "max_tokens is -1"),
        (["--model", "no/such.gguf"], "'no/such.gguf'"),
    ],
)
def test_a_bad_value_is_one_line_and_exit_code_2(arguments, named):
    result = jaxinfer_chat(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ") and named in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(("last", "exit_code"), [("/undo", 0), ("/shout", 1)])
def test_lines_of_a_pipe_are_answered_on_stdout(last, exit_code, monkeypatch):
    tokenizer = SimpleNamespace(can_chat=True, encode_chat=lambda messages: None)
    opens(monkeypatch, tokenizer)
    llm, found = FakeLLM(["It is", " Paris."], ["Rome."]), {}

    def make(model, **settings):
        found.update(settings, model=model)
        return llm

    monkeypatch.setattr("jaxinfer.llm.LLM", make)
    options = ["--model", "m", "--temperature", "0", "--page-size", "8", "--no-prefix-cache", "--system", "Be brief."]
    result = jaxinfer_chat(*options, stdin=f"Capital of France?\nAnd of Italy?\n{last}\n")
    assert (result.exit_code, result.stdout) == (exit_code, "It is Paris.\nRome.\n")
    assert llm.asked[1][0] == ("system", "Be brief.")
    assert llm.params == SamplingParams(temperature=0, max_tokens=None)
    assert found.items() >= {"model": "m", "page_size": 8, "prefix_cache": False, "max_num_seqs": 1}.items()
    assert ">" not in result.stderr  # the sign is for people


# ---- a real model at a real terminal ---------------------------------------------------------------------------------


AT_TERMINAL = """
import os
os.close(os.open(os.ttyname(0), os.O_RDWR))  # the first to be opened in a session is the one whose Ctrl-C it gets
from jaxinfer.__main__ import main
main()
"""


class Terminal:
    """A program at a terminal of its own, a context that ends it."""

    def __init__(self, *arguments):
        self._fd, inner = pty.openpty()
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), inner)
        command = [sys.executable, "-c", AT_TERMINAL, *map(str, arguments)]
        env = os.environ | {"TERM": "xterm"}
        self._running = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True, **streams)
        os.close(inner)
        self._seen = ""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._running.kill()
        self._running.wait()
        os.close(self._fd)

    def type(self, keys):
        os.write(self._fd, keys.encode())

    def read_to(self, pattern):
        """The first match in what is shown, once it is there; fails where nothing more is shown for a minute."""
        while (found := re.search(pattern, self._seen)) is None:
            ready, _, _ = select([self._fd], [], [], 60)
            assert ready, f"no {pattern!r} in {self._seen!r}"
            self._seen += os.read(self._fd, 4096).decode(errors="replace").replace("\r\n", "\n")
        self._seen = self._seen[found.end() :]
        return found

    def press_ctrl_c_in_a_line(self, pattern):
        """As ``read_to``, but presses until it is there: Python's reading of a line sleeps through a signal that comes
        after its look at the signals and before its wait for a key."""
        for _ in range(60):
            self.type("\x03")
            if select([self._fd], [], [], 1)[0]:
                return self.read_to(pattern)
        raise AssertionError(f"no {pattern!r} after Ctrl-C")

    def exit_code(self):
        return self._running.wait(timeout=60)


SPEED = r"stopped\n(\d+) prompt tokens(?: \((\d+) cached\))?, (\d+) output tokens, .* tokens per second\n> "


@pytest.fixture
def story_teller(shared_data, tmp_path):
    """A model of 260,000 weights that goes on for long, with a chat template for those who ask it."""
    for file in (shared_data / "stories260K-hf").iterdir():
        (tmp_path / file.name).symlink_to(file)
    config = json.loads((tmp_path / "config.json").read_text()) | {"max_position_embeddings": 8192}
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(config))
    template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return tmp_path


def test_a_person_stops_an_answer_goes_on_and_leaves(story_teller):
    with Terminal("chat", "--model", story_teller, "--temperature", "0", "--ignore-eos") as terminal:
        terminal.read_to("/help lists the commands.*\n> ")
        counts = []
        for message in ("Once upon a time", "Then"):
            terminal.type(f"{message}\r")
            terminal.read_to(rf"{message}\n[^>]{{100}}")
            terminal.type("\x03")
            counts.append([int(number or 0) for number in terminal.read_to(SPEED).groups()])
        (prompt, cached, output), (next_prompt, next_cached, _) = counts
        assert cached == 0
        assert 20 < prompt + output < 8192
        assert next_prompt > prompt + output / 2  # the answer is in it, perhaps in fewer tokens
        assert next_cached >= 16
        terminal.type("lost")
        terminal.read_to("lost")
        terminal.press_ctrl_c_in_a_line("Ctrl-D or /exit leaves\n> ")
        terminal.type("/undo\r")
        terminal.read_to("exchanges left: 1\n> ")
        terminal.type("\x04")
        assert terminal.exit_code() == 0
