"""What ``LLM.generate`` takes as a prompt: the kinds that users of vLLM know, as text and dicts."""

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict, cast

Message = Mapping[str, Any]
Tools = Sequence[Mapping[str, Any]]


class TextPrompt(TypedDict):
    """A prompt given as text; without ``cache_salt``, which is as in ``Engine.add_request``, the text alone will do."""

    prompt: str
    cache_salt: NotRequired[str | None]


class TokensPrompt(TypedDict):
    """A prompt given as token ids; ``prompt`` may say which text they stand for, and is only handed back."""

    prompt_token_ids: Sequence[int]
    prompt: NotRequired[str]
    cache_salt: NotRequired[str | None]


class ChatPrompt(TypedDict):
    """A conversation that the assistant is to go on with, in the form that the model was trained on.

    ``tools``, as OpenAI's API has them (``{"type": "function", "function": {"name": ..., "parameters": ...}}``), are
    shown to the model. Its calls of them come in ``CompletionOutput.tool_calls`` if they have the form of Mistral,
    Llama 3 or Qwen; in any other they are text. ``chat_template_kwargs`` are more variables for the model's template,
    such as ``enable_thinking``. ``safe_prompt`` puts the guardrail of Mistral's API before the conversation, as its
    system message or the beginning of it (see ``jaxinfer.safe_prompt``).
    """

    messages: Sequence[Message]
    tools: NotRequired[Tools | None]
    chat_template_kwargs: NotRequired[Mapping[str, Any] | None]
    safe_prompt: NotRequired[bool]
    cache_salt: NotRequired[str | None]


Prompt = str | TextPrompt | TokensPrompt | ChatPrompt

_KEYS = ("prompt", "prompt_token_ids", "messages", "tools", "chat_template_kwargs", "safe_prompt", "cache_salt")
_KEYS_OF_CHATS = ("tools", "chat_template_kwargs", "safe_prompt")


def as_mapping(prompt: Prompt) -> Mapping[str, Any]:
    """Any prompt as a dict.

    Raises ValueError for what is no prompt or two of them, and for a key that its kind does not have: a salt that is
    misspelled would keep nobody apart, and tools or a text beside what is answered would be read by nobody. The values
    are not looked at.
    """
    given: Mapping[str, Any] = {"prompt": prompt} if isinstance(prompt, str) else cast(Mapping[str, Any], prompt)
    if not isinstance(given, Mapping) or not given.keys() & {"prompt", "prompt_token_ids", "messages"}:
        allowed = "text, {'prompt_token_ids': [...]} or {'messages': [...]}"
        raise ValueError(f"a prompt is {reprlib.repr(prompt)}; it must be {allowed}")
    if "messages" in given and (others := given.keys() & {"prompt", "prompt_token_ids"}):
        raise ValueError(f"a prompt has the keys 'messages' and {min(others)!r}; only one of them can be answered")
    for key, value in given.items():
        if key not in _KEYS:
            raise ValueError(f"a prompt has the key {reprlib.repr(key)}; it may have {', '.join(_KEYS)}")
        if key in _KEYS_OF_CHATS and value is not None and "messages" not in given:
            raise ValueError(f"a prompt has the key {key!r} and no 'messages', which it belongs to")
    return given
