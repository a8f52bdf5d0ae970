"""Conversations through a jinja template, for every tokenizer whose files bring one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxinfer.chat_template import render_chat
from jaxinfer.tokenizers.protocol import EncodedChat


class ChatByTemplate(ABC):
    """The part of a tokenizer that is the same for all vocabularies: a template writes text, which is then encoded.

    Attributes:
        bos_token_id, eos_token_id: as in ``Tokenizer``.
        chat_template: the source of the template, None where the model has none.
        chat_template_file: where it stands, for messages.
        chat_adds_bos: whether BOS comes first in a conversation, as if the template had written it, where it has not.
    """

    bos_token_id: int | None
    eos_token_id: int | None
    chat_template: str | None
    chat_template_file: Path | None
    chat_adds_bos: bool

    @abstractmethod
    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...

    @abstractmethod
    def token_text(self, token_id: int) -> str: ...

    @property
    def can_chat(self) -> bool:
        return self.chat_template is not None

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> EncodedChat:
        """See ``Tokenizer.encode_chat``; the template writes the special tokens, so none is added to its text."""
        text = render_chat(
            self, messages, tools=tools, add_generation_prompt=add_generation_prompt, options=options or {}
        )
        ids, bos = self.encode(text, add_special_tokens=False), self.bos_token_id
        if not self.chat_adds_bos or bos is None or ids[:1] == [bos]:
            return EncodedChat(text, ids)
        spelled = self.token_text(bos) + text
        ids_of_spelled = self.encode(spelled, add_special_tokens=False)
        # A vocabulary may not read its BOS from text.
        return EncodedChat(spelled, ids_of_spelled if ids_of_spelled[:1] == [bos] else [bos, *ids])
