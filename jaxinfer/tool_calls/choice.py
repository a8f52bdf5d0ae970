"""Which format of tool calls a model was trained on: no file of a model says so, but its conversations show it.

So a conversation with a call is encoded as the model was trained to read it, and the text tells. That is the same for
a template and for Mistral's own encoder, and right where the words of a template mislead: many families write the
tools' schemas in one form and their calls in another.
"""

import logging
import re
from typing import Any

from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.tool_calls.formats import ToolCallFormat
from jaxinfer.tool_calls.llama3 import LLAMA3
from jaxinfer.tool_calls.mistral import MISTRAL
from jaxinfer.tool_calls.qwen import QWEN

logger = logging.getLogger(__name__)

_QUESTION = "What comes before the call?"
_CALL_ID = "abcDEF123"  # of the only form that Mistral's templates take
_CONVERSATION: list[dict[str, Any]] = [
    {"role": "user", "content": _QUESTION},
    {
        "role": "assistant",
        "tool_calls": [{"id": _CALL_ID, "type": "function", "function": {"name": "f", "arguments": {"a": "b"}}}],
    },
    {"role": "tool", "tool_call_id": _CALL_ID, "name": "f", "content": "c"},
]
_TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "d",
        "parameters": {"type": "object", "properties": {"a": {"type": "string", "description": "e"}}},
    },
}
_SIGNS = (
    (MISTRAL, re.compile(r'\[TOOL_CALLS\]\s*(?:\[\s*\{\s*"|f\s*[\[{])')),
    (QWEN, re.compile(r'<tool_call>\s*\{\s*"')),
    (LLAMA3, re.compile(r'(?:\s|<\|python_tag\|>)\{\s*"name":\s*"f",\s*"parameters":\s*\{\s*"a"')),
)


def find_format(tokenizer: Tokenizer) -> ToolCallFormat | None:
    """The format of the model that ``tokenizer`` belongs to; None, with a warning, where it is none of the known ones.

    Renders a conversation once, and is meant to be called once, for a model that is given tools.
    """
    written = _written_call(tokenizer)
    found = next((tool_format for tool_format, sign in _SIGNS if sign.search(written)), None)
    if found is None:
        known = ", ".join(tool_format.name for tool_format, _ in _SIGNS)
        logger.warning(
            "tools are given, and this model writes its calls in none of the known forms (%s): they will be text", known
        )
    return found


def _written_call(tokenizer: Tokenizer) -> str:
    """What the conversation has behind the question; "" where the model has no form for such ones."""
    if not tokenizer.can_chat:
        return ""
    try:
        chat = tokenizer.encode_chat(_CONVERSATION, tools=[_TOOL])
    except ValueError:  # a template of a family without tools may refuse them, and the roles
        return ""
    return chat.text.rpartition(_QUESTION)[2]
