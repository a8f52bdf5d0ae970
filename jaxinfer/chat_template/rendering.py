"""From messages and a tokenizer's template to the text; every way in which a template fails ends here as ValueError."""

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, MappingProxyType
from typing import Any, Protocol

import jinja2

from jaxinfer.chat_template.messages import template_messages
from jaxinfer.chat_template.sandbox import Sandbox

_MAX_SOURCE = 2**16  # characters of a template; the longest of the models' known ones have some 2**14
_SHOWN_CHARACTERS = 500  # of what a template says that it fails with


class TemplateTokenizer(Protocol):
    """What a template needs of a tokenizer.

    Attributes:
        chat_template: the source of the jinja template, None where the model has none.
        chat_template_file: where it stands, for messages; None where it is not known.
        bos_token_id, eos_token_id: None where the vocabulary names none.
    """

    chat_template: str | None
    chat_template_file: Path | None
    bos_token_id: int | None
    eos_token_id: int | None

    def token_text(self, token_id: int) -> str:
        """How the vocabulary spells one token."""


def render_chat(
    tokenizer: TemplateTokenizer,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """The conversation as text, special tokens spelled out: encode it with ``add_special_tokens=False``.

    Args:
        messages: dicts with ``role`` and ``content``, both text, as ``template_messages`` takes them; other keys are
            handed to the template as they are.
        add_generation_prompt: end with what opens the assistant's turn.
        tools: JSON schemas of functions, for templates that know tools.
        options: more variables for the template, such as ``enable_thinking``; none that it does not read.

    Raises:
        ValueError: the model has no template, or tools are given and it does not read them; messages or options are
            not as above; the template has a syntax error, refuses the messages (its own words are in the message),
            uses what is not allowed, or goes past the bounds.
    """
    if tokenizer.chat_template is None:
        raise ValueError("this model has no chat template; give it a prompt as text instead of messages")
    given = template_messages(messages)
    variables = {
        "messages": given,
        "tools": tools,
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
        "bos_token": _spelling(tokenizer, tokenizer.bos_token_id),
        "eos_token": _spelling(tokenizer, tokenizer.eos_token_id),
    }
    with _template_faults(tokenizer.chat_template_file):
        program = _compiled(tokenizer.chat_template)
    if tools is not None and "tools" not in program.reads:
        raise ValueError("this model's chat template has no place for tools, so the model would not know of them")
    _check_options(options, program.reads - variables.keys())
    with _template_faults(tokenizer.chat_template_file):
        environment = Sandbox()
        environment.budget.give([given, tools, dict(options)])
        template = jinja2.Template.from_code(environment, program.code, environment.globals)
        return environment.concat(template.generate(**variables, **options))


@contextmanager
def _template_faults(file: Path | None) -> Iterator[None]:
    """What goes wrong in here is the template's fault, and told as such."""
    place = "" if file is None else f"{file}: "
    try:
        yield
    except jinja2.TemplateAssertionError as error:
        what = f"uses something that is not allowed in line {error.lineno}: {error.message}"
        raise ValueError(f"{place}the chat template {_shortened(what)}") from error
    except jinja2.TemplateSyntaxError as error:
        what = f"has a syntax error in line {error.lineno}: {error.message}"
        raise ValueError(f"{place}the chat template {_shortened(what)}") from error
    except Exception as error:  # whatever Python raises inside the template
        what = str(error) or type(error).__name__
        raise ValueError(f"{place}the chat template failed: {_shortened(what)}") from error


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _check_options(options: Mapping[str, Any], known: frozenset[str]) -> None:
    """A name that the template does not read is refused: it would change nothing, and be taken for what it is not."""
    for name in options:
        if name not in known:
            allowed = f"it reads {', '.join(sorted(known))}" if known else "it reads no options"
            raise ValueError(f"this model's chat template has no option {reprlib.repr(name)}; {allowed}")


def _spelling(tokenizer: TemplateTokenizer, token_id: int | None) -> str:
    return "" if token_id is None else tokenizer.token_text(token_id)


@dataclass(frozen=True)
class _Program:
    """A template as Python code; it holds no state, so every rendering can run it in an environment of its own.

    Attributes:
        code: what runs.
        reads: the variables that it takes from outside, some of which it may set itself where they are not given.
    """

    code: CodeType
    reads: frozenset[str]


@lru_cache(maxsize=16)
def _compiled(source: str) -> _Program:
    if len(source) > _MAX_SOURCE:
        raise jinja2.TemplateError(f"its source has {len(source)} characters; at most {_MAX_SOURCE} are read")
    environment = Sandbox()
    parsed = environment.parse(source)
    reads = environment.outer_names(parsed)  # first: compiling changes what was parsed
    return _Program(environment.compile(parsed), reads)
