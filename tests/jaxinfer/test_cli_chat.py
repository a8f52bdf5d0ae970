"""``jaxinfer chat`` over a made-up model: what it is asked, what is kept of its answers, and how the program ends."""

import re
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from jaxinfer.cli import app
from jaxinfer.cli.chat_session import ChatSession
from jaxinfer.cli.conversation import Conversation, Exchange
from jaxinfer.cli.ctrl_c import CtrlC
from jaxinfer.sampling_params import SamplingParams
from tests.conversations import REFUSE, UNFIT, FakeLLM, FakeTokenizer, lines, out_of_room, press


@pytest.fixture
def ctrl_c() -> Iterator[CtrlC]:
    installed = CtrlC()
    with installed.installed():
        yield installed


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


def test_the_template_gets_its_variables_with_every_message():
    llm = FakeLLM(["a"], ["b"], ["c"])
    options = {"enable_thinking": False}
    talk(llm, "1", "/reset", "2", "/undo", "3", conversation=Conversation(template_kwargs=options))
    assert llm.prompts == [
        {"messages": [{"role": "user", "content": question}], "chat_template_kwargs": options} for question in "123"
    ]


def test_without_variables_there_are_none():
    llm = FakeLLM(["a"])
    talk(llm, "1")
    assert llm.prompts == [{"messages": [{"role": "user", "content": "1"}]}]


@pytest.mark.parametrize("before", [None, "Be brief."])
def test_a_system_message_that_the_template_refuses_is_not_set(before, capsys):
    llm, conversation = FakeLLM(["a"], ["b"]), Conversation(before)
    assert talk(llm, "1", f"/system {UNFIT}", "2", conversation=conversation).num_failed == 1
    assert conversation == Conversation(before, exchanges=[Exchange("1", "a"), Exchange("2", "b")])
    err = capsys.readouterr().err
    assert "error: the chat template failed: unfit; the system message is as it was\n" in err
    assert "is set" not in err


@pytest.mark.parametrize(
    ("command", "left"),
    [("/undo", [Exchange("1", "a"), Exchange("2", "b")]), ("/forget", [Exchange("2", "b"), Exchange("3", "c")])],
)
def test_the_newest_or_the_oldest_exchange_is_dropped(command, left, capsys):
    conversation = Conversation("Be brief.")
    assert talk(FakeLLM(["a"], ["b"], ["c"]), "1", "2", "3", command, conversation=conversation).num_failed == 0
    assert conversation == Conversation("Be brief.", exchanges=left)
    assert capsys.readouterr().err.endswith("exchanges left: 2\n")


def test_reset_leaves_the_system_message():
    conversation = Conversation("Be brief.")
    assert talk(FakeLLM(["a"], ["b"]), "1", "2", "/reset", conversation=conversation).num_failed == 0
    assert conversation == Conversation("Be brief.")


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ("/shout", "/shout"),
        ("/Shout at me", '/shout; /help lists them, and """ around a line makes it a message'),
        ("/no-command", "/no-command"),
        ("/etc is what?", "/etc"),
        ("/undo all", "'all'"),
        ("/undo", "empty"),
        ("/forget", "empty"),
        ('"""open', '"""'),
    ],
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
    assert err.count("error: it cannot be served\nthe conversation is as it was before this message\n") == 2


@pytest.mark.parametrize(
    ("questions", "hints"),
    [
        (["x" * 101], 0),  # alone: there is nothing to drop
        (["x", "x" * 99], 1),  # with "x" and "a" before it, one too many
        (["x", "x" * 98], 0),  # refused for something else
        (["x", UNFIT + "x" * 100], 0),
    ],
)
def test_how_to_make_room_is_said_where_that_helps(questions, hints, capsys):
    *answered, _ = questions
    talk(FakeLLM(*(["a"] for _ in answered), REFUSE), *questions)
    hint = "the conversation is as it was before this message; /forget drops its oldest exchange, /reset all\n"
    assert capsys.readouterr().err.count(hint) == hints


def test_an_empty_answer_is_not_kept(capsys):
    conversation = Conversation()
    talk(FakeLLM([], ["\n"], ["a"]), "1", "2", "3", conversation=conversation)
    assert conversation.exchanges == [Exchange("3", "a")]
    assert capsys.readouterr().err.count("the answer is empty; the message is not kept") == 2


@pytest.mark.parametrize(("max_tokens", "named"), [(2, "cut at 2 tokens, as --max-tokens says"), (None, "/forget")])
def test_an_answer_that_was_cut_says_by_what(max_tokens, named, capsys):
    conversation = Conversation()
    talk(FakeLLM(["a", out_of_room]), "1", params=SamplingParams(max_tokens=max_tokens), conversation=conversation)
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

    monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=write, flush=lambda: None, isatty=lambda: False))
    talk(FakeLLM(["Once", " upon", " a"]), "1", conversation=conversation, ctrl_c=ctrl_c)
    assert conversation.exchanges == [Exchange("1", "Once upon")]
    assert " a" not in written


def test_an_answer_steers_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    conversation = Conversation()
    talk(FakeLLM(["\x1b]0;", "owned\x07"]), "1", conversation=conversation)
    assert capsys.readouterr().out == "\\x1b]0;owned\\x07\n"
    assert conversation.exchanges == [Exchange("1", "\x1b]0;owned\x07")]  # the model sees what it wrote


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

    # This one first: it imports jaxinfer.llm, which takes the real `open_model` for itself.
    monkeypatch.setattr("jaxinfer.llm.build_engine", build)
    monkeypatch.setattr("jaxinfer.loading.open_model", lambda model, load_format: SimpleNamespace(tokenizer=tokenizer))


@pytest.mark.parametrize("tokenizer", [None, SimpleNamespace(can_chat=False)])
def test_a_model_that_cannot_chat_is_refused_before_its_weights_are_read(tokenizer, monkeypatch):
    opens(monkeypatch, tokenizer)
    result = jaxinfer_chat("--model", "some-model", stdin="Hello\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch("error: model is 'some-model', which has no chat template; .*\n", result.stderr)


def test_so_is_a_system_message_that_its_template_refuses(monkeypatch):
    def encode_chat(messages, tools, options):
        assert tools is options is None
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
    opens(monkeypatch, FakeTokenizer())
    llm = FakeLLM(["It is", " Paris."], ["Rome."])
    monkeypatch.setattr("jaxinfer.llm.LLM", lambda opened, **settings: llm)
    result = jaxinfer_chat("--model", "m", stdin=f"Capital of France?\nAnd of Italy?\n{last}\n")
    assert (result.exit_code, result.stdout) == (exit_code, "It is Paris.\nRome.\n")
    assert llm.params == SamplingParams(max_tokens=None)
    assert ">" not in result.stderr  # the sign is for people
