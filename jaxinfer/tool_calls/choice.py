"""Which format of tool calls a model was trained on: no file of a model says so, but its template writes it."""

from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.tool_calls.formats import ToolCallFormat
from jaxinfer.tool_calls.llama3 import LLAMA3, PYTHON_TAG
from jaxinfer.tool_calls.mistral import MISTRAL
from jaxinfer.tool_calls.qwen import QWEN

_OTHER_FORM = "<function="  # XML inside <tool_call>, as Qwen3-Coder writes it


def find_format(tokenizer: Tokenizer) -> ToolCallFormat | None:
    """The format of the model that ``tokenizer`` belongs to; None where it is none of the known ones.

    The chat template decides, where there is one: fine-tuned models keep the vocabulary of their family and get another
    template. Mistral's own tokenizer has none; there the vocabulary decides.
    """
    template = getattr(tokenizer, "chat_template", None)
    if template is None:
        return MISTRAL if tokenizer.token_id(MISTRAL.markers[0]) is not None else None
    if QWEN.markers[0] in template:
        return None if _OTHER_FORM in template else QWEN
    if MISTRAL.markers[0] in template:
        return MISTRAL
    if '"parameters"' in template and tokenizer.token_id(PYTHON_TAG) is not None:
        return LLAMA3
    return None
