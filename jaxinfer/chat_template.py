"""Writes a conversation as the text that a model was trained on, by the model's own jinja template.

A template is a program from a stranger's file, so it runs in jinja's immutable sandbox (no files, no imports, no
attributes that begin with an underscore, no changes to what it is given) and within bounds that end it:

- steps: rounds of loops, calls (recursive macros included), filters and operators, and the time they take;
- sizes: of the text, and of every product, power, sum, concatenation and filter's result on the way to it.

A single step is not interrupted: one that asks for much at once (``center`` to a width of gigabytes) is found only when
it is done. Where Python says that memory or depth is out, that is an error of the template like any other.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import CodeType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jaxinfer.tokenizers.protocol import Tokenizer

_MAX_STEPS = 200_000
_MAX_SECONDS = 5.0
_MAX_SIZE = 8 * 2**20  # characters of a text, items of a list, bits of a whole number
_COUNTED = "counted items"  # with a space, no template can spell it


def render_chat(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """The conversation as text, special tokens spelled out: encode it with ``add_special_tokens=False``.

    Args:
        messages: dicts with ``role`` and ``content``, both text; other keys are handed to the template as they are.
            ``content`` may be None or absent in a message that has ``tool_calls``.
        add_generation_prompt: end with what opens the assistant's turn.
        tools: JSON schemas of functions, for templates that know tools.

    Raises:
        ValueError: the model has no template; messages are not as above; the template has a syntax error, refuses the
            messages (its own words are in the message), asks for what the sandbox forbids, or goes past the bounds.
    """
    if tokenizer.chat_template is None:
        raise ValueError("this model has no chat template; give it a prompt as text instead of messages")
    _check_messages(messages)
    try:
        environment = _Environment()
        template = jinja2.Template.from_code(environment, _compiled(tokenizer.chat_template), environment.globals)
        pieces = template.generate(
            messages=messages,
            tools=tools,
            documents=None,
            add_generation_prompt=add_generation_prompt,
            bos_token=_spelling(tokenizer, tokenizer.bos_token_id),
            eos_token=_spelling(tokenizer, tokenizer.eos_token_id),
        )
        return environment.concat(pieces)
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"the chat template has a syntax error in line {error.lineno}: {error.message}") from error
    except Exception as error:  # whatever Python raises inside the template is the template's fault
        raise ValueError(f"the chat template failed: {str(error) or type(error).__name__}") from error


def _check_messages(messages: object) -> None:
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise ValueError(f"messages is {messages!r}; it must be a list of at least one dict with 'role' and 'content'")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise ValueError(f"messages[{i}] is {message!r}; it must be a dict with 'role' and 'content'")
        if not isinstance(message.get("role"), str):
            raise ValueError(f"messages[{i}]['role'] is {message.get('role')!r}; it must be text")
        content = message.get("content")
        if not isinstance(content, str) and not (content is None and message.get("tool_calls")):
            raise ValueError(f"messages[{i}]['content'] is {content!r}; it must be text")


def _spelling(tokenizer: Tokenizer, token_id: int | None) -> str:
    return "" if token_id is None else tokenizer.token_text(token_id)


@lru_cache(maxsize=16)
def _compiled(source: str) -> CodeType:
    """The template as Python code; it holds no state, so every rendering can run it in an environment of its own."""
    return _Environment().compile(source)


class _BoundedCode(CodeGenerator):
    """Compiles what an environment cannot intercept (loops, filters, ``~``) into calls of its own methods."""

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:
        for loop in node.find_all(nodes.For):
            counted = nodes.Filter(loop.iter, _COUNTED, [], [], None, None, lineno=loop.lineno)
            loop.iter = counted.set_environment(self.environment)
        super().visit_Template(node, frame)

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:
        self.write("environment.bounded(")
        super().visit_Filter(node, frame)
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.bounded(")
        super().visit_Concat(node, frame)
        self.write(")")


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox of one rendering: it counts the steps and weighs what the template builds."""

    code_generator_class = _BoundedCode
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, _GenerationTag])
        self._num_steps = 0
        self._deadline = time.monotonic() + _MAX_SECONDS
        self.filters |= {"tojson": _to_json, _COUNTED: self._counted}
        self.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        __self._step()
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*" and _product_size(left, right) > _MAX_SIZE:
            raise _too_large()
        if operator == "**" and _power_bits(left, right) > _MAX_SIZE:
            raise _too_large()
        return self.bounded(super().call_binop(context, operator, left, right))

    def concat(self, pieces: Iterable[str]) -> str:
        return "".join(self._while_bounded(pieces))

    def bounded(self, value: Any) -> Any:
        """``value``, unless it is too large to go on with."""
        self._step()
        if isinstance(value, str | Sequence) and len(value) > _MAX_SIZE:
            raise _too_large()
        return value

    def _step(self) -> None:
        self._num_steps += 1
        if self._num_steps > _MAX_STEPS or time.monotonic() > self._deadline:
            raise jinja2.TemplateError(f"it takes more than {_MAX_STEPS} steps or {_MAX_SECONDS} seconds")

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._step()
            yield item

    @staticmethod
    def _while_bounded(pieces: Iterable[str]) -> Iterator[str]:
        size = 0
        for piece in pieces:
            size += len(piece)
            if size > _MAX_SIZE:
                raise _too_large()
            yield piece


class _GenerationTag(Extension):
    """``{% generation %}`` marks the assistant's words for training; here it only gives them."""

    tags: set[str] = {"generation"}  # noqa: RUF012 -- jinja declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _product_size(left: Any, right: Any) -> int:
    """Length of a text or list times a number, or bits of a product of two whole numbers."""
    if isinstance(left, int) and isinstance(right, int):
        return left.bit_length() + right.bit_length()
    for many, times in ((left, right), (right, left)):
        if isinstance(many, str | Sequence) and isinstance(times, int):
            return len(many) * times
    return 0


def _power_bits(base: Any, exponent: Any) -> int:
    return base.bit_length() * exponent if isinstance(base, int) and isinstance(exponent, int) else 0


def _too_large() -> jinja2.TemplateError:
    return jinja2.TemplateError(f"it builds a value of more than {_MAX_SIZE} characters or items")


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained on it: no HTML escapes, which jinja's own filter makes, and no ASCII escapes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().strftime(layout)
