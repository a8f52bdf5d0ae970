"""Conversations through a jinja template, for every tokenizer whose files bring one."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from jaxinfer.chat_template import TemplateTokenizer, render_chat
from jaxinfer.tokenizers.protocol import EncodedChat


class _Encoder(TemplateTokenizer, Protocol):
    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...


def encode_by_template(
    tokenizer: _Encoder,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None,
    add_generation_prompt: bool,
    options: Mapping[str, Any] | None,
    first: int | None,
) -> EncodedChat:
    """See ``Tokenizer.encode_chat``.

    The template writes the special tokens itself, so none is added to its text; but a token ``first`` comes first, as
    if the template had written it, where it has not.
    """
    text = render_chat(
        tokenizer, messages, tools=tools, add_generation_prompt=add_generation_prompt, options=options or {}
    )
    ids = tokenizer.encode(text, add_special_tokens=False)
    if first is None or ids[:1] == [first]:
        return EncodedChat(text, ids)
    spelled = tokenizer.token_text(first) + text
    ids_of_spelled = tokenizer.encode(spelled, add_special_tokens=False)
    # A vocabulary may not read its BOS from text.
    return EncodedChat(spelled, ids_of_spelled if ids_of_spelled[:1] == [first] else [first, *ids])
