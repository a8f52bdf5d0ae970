"""A vocabulary of bytes with the markers of every format, as each family's has them: special tokens, or added text."""

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from jaxinfer.tokenizers.huggingface import HuggingFaceTokenizer

SPECIAL = ["<s>", "</s>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>", "<|eom_id|>"]
ADDED = ["<tool_call>", "</tool_call>"]


def byte_tokenizer(
    template: str | None = None, special: list[str] = SPECIAL, added: list[str] = ADDED
) -> HuggingFaceTokenizer:
    """Every byte is a token, ``special`` have no text, and ``added`` are tokens with a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(special)
    inner.add_tokens([tokenizers.AddedToken(token, special=False, normalized=False) for token in added])
    return HuggingFaceTokenizer(inner, bos_token_id=None, add_bos=False, eos_token_id=None, chat_template=template)
