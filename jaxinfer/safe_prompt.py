"""``safe_prompt`` of Mistral's API: a guardrail that is put before a conversation, as its system message.

The text and its place are those of Mistral's documentation (https://docs.mistral.ai/deprecated/safe_prompt, formerly
/usage/guardrailing); the API has replaced the option by guardrails of its service since. It says nothing of a
conversation with a system message of its own: here the guardrail comes before that, in the same message and with a
blank line between, since many templates take one such message only, and only as the first.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxinfer.value_checks import check_bool

if TYPE_CHECKING:  # its package reads every form of vocabulary, which `jaxinfer --help` need not wait for
    from jaxinfer.tokenizers.protocol import EncodedChat, Tokenizer

SAFE_PROMPT = (
    "Always assist with care, respect, and truth. Respond with utmost utility yet securely. "
    "Avoid harmful, unethical, prejudiced, or negative content. Ensure replies promote fairness and positivity."
)

_SYSTEM = "system"


def encode_conversation(
    tokenizer: "Tokenizer",
    messages: Sequence[Mapping[str, Any]],
    *,
    safe_prompt: bool,
    tools: Sequence[Mapping[str, Any]] | None = None,
    options: Mapping[str, Any] | None = None,
) -> "EncodedChat":
    """``Tokenizer.encode_chat``, with the guardrail before the conversation where ``safe_prompt`` says so.

    Raises:
        ValueError: as there; ``safe_prompt`` is no bool, or the model's form of a conversation has no place for a
            system message: a template may refuse it, or leave it out without a word.
    """
    check_bool("safe_prompt", safe_prompt)
    if not safe_prompt:
        return tokenizer.encode_chat(messages, tools=tools, options=options)
    try:
        chat = tokenizer.encode_chat(_guarded(messages), tools=tools, options=options)
    except ValueError as error:
        tokenizer.encode_chat(messages, tools=tools, options=options)  # what the guardrail has no part in is told as is
        raise ValueError(f"{error} (messages[0] is the system message of safe_prompt)") from error
    if SAFE_PROMPT not in chat.text:
        raise ValueError("safe_prompt is a system message, and this model's form of a conversation leaves it out")
    return chat


def _guarded(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The messages with the guardrail; what is no list of messages stays, to be refused where all such are."""
    if isinstance(messages, str) or not isinstance(messages, Sequence) or not messages:
        return messages
    first = messages[0]
    if isinstance(first, Mapping) and first.get("role") == _SYSTEM:
        return [{**first, "content": _guarded_content(first.get("content"))}, *messages[1:]]
    return [{"role": _SYSTEM, "content": SAFE_PROMPT}, *messages]


def _guarded_content(content: Any) -> Any:
    """Content of a system message, text or a list of parts that are text, with the guardrail before it."""
    if isinstance(content, str):
        return f"{SAFE_PROMPT}\n\n{content}" if content else SAFE_PROMPT
    if not isinstance(content, list | tuple):
        return content
    first = content[0] if content else {"type": "text", "text": ""}
    if isinstance(first, Mapping) and isinstance(first.get("text"), str):
        return [{**first, "text": _guarded_content(first["text"])}, *content[1:]]
    return content
