"""The prompts of one run: where each came from, for messages, and what the engine is given for it."""

import json
import reprlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxinfer.cli.chat_entries import BYTE_ORDER_MARK
from jaxinfer.cli.conversation import Conversation
from jaxinfer.prompts import Prompt

if TYPE_CHECKING:
    from jaxinfer.tokenizers.protocol import Tokenizer

_STDIN = "-"


@dataclass(frozen=True)
class UserPrompt:
    """A prompt as the user gave it.

    Attributes:
        text: what was typed.
        place: where, such as ``line 3 of questions.txt``.
    """

    text: str
    place: str


@dataclass(frozen=True, kw_only=True)
class PromptForm:
    """How the text of every prompt of a run is to be read.

    Attributes:
        chat: it is a user's message, for the model's chat template.
        system: the system message before it; with ``chat`` only.
        template_kwargs: more variables for the template; with ``chat`` only.
        token_ids: it is a list of token ids.

    Raises:
        ValueError: two of these contradict each other.
    """

    chat: bool
    system: str | None
    template_kwargs: Mapping[str, Any] | None
    token_ids: bool

    def __post_init__(self) -> None:
        if self.chat and self.token_ids:
            raise ValueError("--chat needs text and --token-ids gives ids; choose one")
        if self.system is not None and not self.chat:
            raise ValueError("--system goes with --chat")
        if self.template_kwargs is not None and not self.chat:
            raise ValueError("--chat-template-kwargs goes with --chat")

    def check_tokenizer(self, tokenizer: "Tokenizer | None") -> None:
        """Refuses a model that can take no prompt of this form.

        Raises:
            ValueError: it has no chat template, or that refuses the system message or a variable.
        """
        if not self.chat:
            return
        if tokenizer is None or not tokenizer.can_chat:
            raise ValueError("this model has no chat template; leave out --chat")
        Conversation(self.system, self.template_kwargs).check(tokenizer)

    def engine_prompt(self, text: str) -> Prompt:
        """What ``LLM.generate`` takes for this text.

        Raises:
            ValueError: the text is empty or no list of ids.
        """
        if not text:
            raise ValueError("the prompt is empty; at least one token is needed")
        if self.token_ids:
            return {"prompt_token_ids": _parse_ids(text)}
        if self.chat:
            return Conversation(self.system, self.template_kwargs).prompt(text)
        return text


def parse_template_kwargs(text: str | None) -> Mapping[str, Any] | None:
    """The value of ``--chat-template-kwargs``; None where it was not given.

    Raises:
        ValueError: it is no JSON object.
    """
    if text is None:
        return None
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"--chat-template-kwargs is {reprlib.repr(text)}; it must be a JSON object: {error}"
        ) from error
    if not isinstance(value, dict):
        raise ValueError(f"--chat-template-kwargs is {reprlib.repr(text)}; it must be a JSON object")
    return value


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def gather_prompts(texts: Sequence[str] | None, file: str | None) -> list[UserPrompt]:
    """The prompts of ``--prompt`` or those of ``--prompts-file``, in their order.

    Lines are taken as they are, without their line ends, blank ones too: the n-th result belongs to the n-th line.

    Raises:
        ValueError: both are given or neither, or the file cannot be read or has no line.
    """
    if texts and file is not None:
        raise ValueError("--prompt and --prompts-file are both given; choose one")
    if file is not None:
        return _read_lines(file)
    if texts:
        return [UserPrompt(text, f"prompt {number}") for number, text in enumerate(texts, start=1)]
    raise ValueError("there is no prompt; give --prompt TEXT or --prompts-file FILE (- is stdin)")


def _read_lines(file: str) -> list[UserPrompt]:
    name = "stdin" if file == _STDIN else file
    try:
        raw = _read_stdin() if file == _STDIN else _read_file(file)
        text = raw.decode("utf-8").removeprefix(BYTE_ORDER_MARK)
    except OSError as error:
        raise ValueError(f"the prompts file {name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"the prompts file {name} is not UTF-8: byte {error.start} is {raw[error.start]:#x}"
        ) from error
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    if lines == [""]:
        raise ValueError(f"the prompts file {name} has no prompt")
    return [UserPrompt(line, f"line {number} of {name}") for number, line in enumerate(lines, start=1)]


def _read_stdin() -> bytes:
    if sys.stdin is None:
        raise ValueError("--prompts-file is -, and stdin is closed")
    return sys.stdin.buffer.read()


def _read_file(file: str) -> bytes:
    if not file:
        raise ValueError("--prompts-file has an empty name; give a file, or - for stdin")
    return Path(file).read_bytes()


def _parse_ids(text: str) -> list[int]:
    words = text.replace(",", " ").split()
    try:
        if not all(word.isascii() and word.isdecimal() for word in words):  # int() takes 1_0 too, and other scripts
            raise ValueError
        return [int(word) for word in words]
    except ValueError:  # also a number of thousands of digits
        raise ValueError(
            f"the prompt is {reprlib.repr(text)}; with --token-ids it must be ids separated by commas or spaces"
        ) from None
