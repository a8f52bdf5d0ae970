"""The prompts of ``jaxinfer generate``: where they come from, and what the engine is given."""

from types import SimpleNamespace

import pytest

from jaxinfer.cli.prompts import PromptForm, gather_prompts
from tests.command_line import jaxinfer
from tests.conversations import UNFIT, FakeTokenizer


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\r\ntwo", ["one", "two"]),
        (b"\xef\xbb\xbfone\n", ["one"]),  # the mark with which Windows begins a UTF-8 file
        (b" one \n\ntwo\n\n", [" one ", "", "two", ""]),
        ("a\u2028b\x0cc\n".encode(), ["a\u2028b\x0cc"]),  # line ends to str.splitlines, but not to an editor
        (b"\n", None),
        (b"", None),
    ],
)
def test_lines_of_a_prompts_file(raw, expected, tmp_path):
    file = tmp_path / "prompts"
    file.write_bytes(raw)
    if expected is None:
        with pytest.raises(ValueError, match=f"{file} has no prompt"):
            gather_prompts(None, str(file))
    else:
        found = gather_prompts(None, str(file))
        assert [prompt.text for prompt in found] == expected
        assert [prompt.place for prompt in found] == [f"line {i + 1} of {file}" for i in range(len(expected))]


def test_a_prompts_file_that_cannot_be_read_is_named(tmp_path):
    binary = tmp_path / "binary"
    for mark in (b"", b"\xef\xbb\xbf"):
        binary.write_bytes(mark + b"ok\n\xff\xfe")
        with pytest.raises(ValueError, match=rf"{binary} is not UTF-8: byte {len(mark) + 3} is 0xff"):
            gather_prompts(None, str(binary))
    with pytest.raises(ValueError, match=f"{tmp_path / 'absent'} cannot be read: No such file"):
        gather_prompts(None, str(tmp_path / "absent"))


def test_a_prompts_file_without_a_name_is_no_folder():
    assert jaxinfer("generate", "--prompts-file", "").stderr == (
        "error: --prompts-file has an empty name; give a file, or - for stdin\n"
    )


def test_prompts_are_read_from_stdin(monkeypatch):
    result = jaxinfer("generate", "--prompts-file", "-", "--model", "nowhere.gguf", stdin="")
    assert result.stderr == "error: the prompts file stdin has no prompt\n"


def test_token_ids_are_separated_by_commas_or_spaces():
    form = PromptForm(chat=False, system=None, template_kwargs=None, token_ids=True)
    assert form.engine_prompt("1, 22 333,4") == {"prompt_token_ids": [1, 22, 333, 4]}


@pytest.mark.parametrize(
    "text", ["1 b", "1_0", "-1", "+1", "1.0", "0x1", "\u0663", "\uff11", "\u00b2", "7" * 5000, "7 x" * 5000]
)
def test_anything_but_decimal_digits_is_no_token_id_and_is_quoted_in_short(text):
    form = PromptForm(chat=False, system=None, template_kwargs=None, token_ids=True)
    with pytest.raises(ValueError, match="with --token-ids") as error:
        form.engine_prompt(text)
    assert repr(text)[:8] in str(error.value)
    assert len(str(error.value)) < 200


def test_chat_puts_the_system_message_before_the_users():
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}
    with_system = PromptForm(chat=True, system="Be brief.", template_kwargs=None, token_ids=False)
    assert with_system.engine_prompt("Who?") == {"messages": [system, user]}
    options = {"enable_thinking": False}
    with_options = PromptForm(chat=True, system=None, template_kwargs=options, token_ids=False)
    assert with_options.engine_prompt("Who?") == {"messages": [user], "chat_template_kwargs": options}
    safe = PromptForm(chat=True, system=None, template_kwargs=None, token_ids=False, safe_prompt=True)
    assert safe.engine_prompt("Who?") == {"messages": [user], "safe_prompt": True}


@pytest.mark.parametrize(
    ("tokenizer", "system", "words"),
    [
        (None, "Be brief.", "this model has no chat template; leave out --chat"),
        (SimpleNamespace(can_chat=False), "Be brief.", "this model has no chat template; leave out --chat"),
        (FakeTokenizer(), UNFIT, "the chat template failed: unfit"),
    ],
)
def test_chat_with_a_model_that_cannot_is_refused_before_its_weights_are_read(tokenizer, system, words, monkeypatch):
    def make(*arguments, **settings):
        raise AssertionError("the weights were wanted")

    monkeypatch.setattr("jaxinfer.llm.LLM", make)
    monkeypatch.setattr("jaxinfer.loading.open_model", lambda model, load_format: SimpleNamespace(tokenizer=tokenizer))
    result = jaxinfer("generate", "--model", "some-model", "--prompt", "Hello", "--chat", "--system", system)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"error: {words}\n")
