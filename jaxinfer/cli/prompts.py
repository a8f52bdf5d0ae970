"""The prompts of one run: where each came from, for messages, and what the engine is given for it."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jaxinfer.cli.conversation import Conversation
from jaxinfer.cli.text_files import read_file_or_stdin, shown_name
from jaxinfer.prompts import Prompt

if TYPE_CHECKING:
    from jaxinfer.tokenizers.protocol import Tokenizer


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
        safe_prompt: a guardrail comes before the system message; with ``chat`` only.

    Raises:
        ValueError: two of these contradict each other.
    """

    chat: bool
    system: str | None
    template_kwargs: Mapping[str, Any] | None
    token_ids: bool
    safe_prompt: bool = False

    def __post_init__(self) -> None:
        if self.chat and self.token_ids:
            raise ValueError("--chat needs text and --token-ids gives ids; choose one")
        if self.system is not None and not self.chat:
            raise ValueError("--system goes with --chat")
        if self.template_kwargs is not None and not self.chat:
            raise ValueError("--chat-template-kwargs goes with --chat")
        if self.safe_prompt and not self.chat:
            raise ValueError("--safe-prompt goes with --chat")

    def check_tokenizer(self, tokenizer: "Tokenizer | None") -> None:
        """Refuses a model that can take no prompt of this form.

        Raises:
            ValueError: it has no chat template, or that refuses the system message or a variable.
        """
        if not self.chat:
            return
        if tokenizer is None or not tokenizer.can_chat:
            raise ValueError("this model has no chat template; leave out --chat")
        self._conversation().check(tokenizer)

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
            return self._conversation().prompt(text)
        return text

    def _conversation(self) -> Conversation:
        return Conversation(self.system, self.template_kwargs, safe_prompt=self.safe_prompt)


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
    name = shown_name(file)
    text = read_file_or_stdin("--prompts-file", "the prompts file", file)
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    if lines == [""]:
        raise ValueError(f"the prompts file {name} has no prompt")
    return [UserPrompt(line, f"line {number} of {name}") for number, line in enumerate(lines, start=1)]


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
