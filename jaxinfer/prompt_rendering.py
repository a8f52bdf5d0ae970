"""From a prompt as callers give it to what the engine takes: text, or the token ids of a conversation."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jaxinfer.prompts import Prompt, as_mapping
from jaxinfer.safe_prompt import encode_conversation
from jaxinfer.tool_calls import ToolCallFormat, check_tools, find_format

if TYPE_CHECKING:  # as in `jaxinfer.safe_prompt`
    from jaxinfer.tokenizers.protocol import EncodedChat, Tokenizer


@dataclass(frozen=True)
class RenderedPrompt:
    """A prompt as arguments of ``Engine.add_request`` of the same names; the values are not checked yet.

    Attributes:
        prompt: text, or token ids.
        prompt_text: what the ids stand for, where that is known.
        cache_salt: as there.
        tool_format: as there.
    """

    prompt: str | Sequence[int]
    prompt_text: str | None
    cache_salt: str | None
    tool_format: ToolCallFormat | None


class PromptRenderer:
    """Renders the prompts of one model.

    Args:
        tokenizer: None for a model without one, which cannot chat.
    """

    def __init__(self, tokenizer: "Tokenizer | None") -> None:
        self._tokenizer = tokenizer

    def render(self, prompt: Prompt, *, is_held: bool = False) -> RenderedPrompt:
        """The prompt for the engine.

        Args:
            prompt: of any kind.
            is_held: whether the answer is held to a form. A form goes before tools: JSON that was asked for may look
                like a call, so no calls are looked for then.

        Raises:
            ValueError: it is no prompt, its text is none, or its conversation cannot be rendered.
        """
        given = as_mapping(prompt)
        cache_salt, tools = given.get("cache_salt"), given.get("tools")
        if "messages" in given:
            chat = self._encode_chat(given)
            tool_format = self._tool_format if tools and not is_held else None
            return RenderedPrompt(chat.token_ids, chat.text, cache_salt, tool_format)
        text, token_ids = given.get("prompt"), given.get("prompt_token_ids")
        if not isinstance(text, str | None):
            raise ValueError(f"prompt is {reprlib.repr(text)}; it must be text")
        if "prompt_token_ids" not in given:
            assert text is not None, "`as_mapping` takes no prompt of nothing"
            return RenderedPrompt(text, None, cache_salt, None)
        if isinstance(token_ids, str):
            raise ValueError(f"prompt_token_ids is {reprlib.repr(token_ids)}; it must be a list of token ids")
        return RenderedPrompt(token_ids, text, cache_salt, None)  # type: ignore[arg-type]  # the engine looks

    @cached_property
    def _tool_format(self) -> ToolCallFormat | None:
        """How the model writes its calls; looked for when tools are given for the first time."""
        return None if self._tokenizer is None else find_format(self._tokenizer)

    def _encode_chat(self, given: Mapping[str, Any]) -> "EncodedChat":
        tools, template_kwargs = given.get("tools"), given.get("chat_template_kwargs")
        if self._tokenizer is None:
            raise ValueError("the model has no tokenizer, so it cannot chat; give token ids")
        if tools is not None:
            check_tools(tools)
        if not isinstance(template_kwargs, Mapping | None):
            raise ValueError(f"chat_template_kwargs is {reprlib.repr(template_kwargs)}; it must be a dict")
        # Templates ask whether there are tools, not how many: without any, the model is to hear nothing of them.
        return encode_conversation(
            self._tokenizer,
            given["messages"],
            tools=tools or None,
            options=template_kwargs,
            safe_prompt=given.get("safe_prompt", False),
        )
