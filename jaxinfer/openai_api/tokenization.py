"""Bodies and answers of ``/tokenize`` and ``/detokenize``, which are vLLM's: how the model reads a text or a chat."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from jaxinfer.openai_api.errors import invalid
from jaxinfer.openai_api.field_errors import CheckedBody, ListOf
from jaxinfer.prompts import ChatPrompt

_FIELDS_OF_CHATS = ("tools", "chat_template_kwargs", "safe_prompt")


class TokenizeBody(CheckedBody):
    """A text, or a conversation as ``/v1/chat/completions`` takes it.

    ``add_special_tokens`` is of texts: whether the BOS that the model wants is put before it, as completions do; a
    conversation brings its own.
    """

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}]})

    model: str | None = None
    prompt: str | None = None
    add_special_tokens: bool | None = None
    messages: ListOf[dict[str, Any]] | None = None
    tools: ListOf[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    safe_prompt: bool | None = None

    def text(self) -> str | None:
        """The text; None where it is a conversation. Raises ApiError 400 where it is neither, or both."""
        if (self.prompt is None) == (self.messages is None):
            raise invalid("the body must have one of prompt and messages", "prompt")
        others = _FIELDS_OF_CHATS if self.messages is None else ("add_special_tokens",)
        for name in others:
            if getattr(self, name) is not None:
                raise invalid(f"{name} does not go with {'prompt' if self.messages is None else 'messages'}", name)
        return self.prompt

    def conversation(self) -> ChatPrompt:
        """The conversation, for the engine."""
        return {
            "messages": self.messages or [],
            "tools": self.tools,
            "chat_template_kwargs": self.chat_template_kwargs,
            "safe_prompt": bool(self.safe_prompt),
        }


class Tokenized(BaseModel):
    """Attributes: the token ids, how many they are, and how many of prompt and output together the model can take."""

    tokens: list[int]
    count: int
    max_model_len: int


class DetokenizeBody(CheckedBody):
    """Token ids."""

    model: str | None = None
    tokens: ListOf[int]


class Detokenized(BaseModel):
    """Attributes: their text, in which special tokens are not."""

    prompt: str
