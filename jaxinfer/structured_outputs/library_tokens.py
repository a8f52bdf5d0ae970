"""A list of tokens in the class that ``llguidance`` wants: a model's, or those of the process that tries forms."""

from llguidance import LLTokenizer, TokenizerWrapper


def library_tokens(tokens: list[bytes]) -> LLTokenizer:
    """One token for each, and behind them the library's own EOS; those without bytes are never part of a text."""
    return LLTokenizer(TokenizerWrapper(_TokenBytes(tokens)))


class _TokenBytes:
    """The attributes that the library reads."""

    eos_token_id = None  # it adds one at the end
    bos_token_id = None
    special_token_ids = ()

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = tokens

    def __call__(self, text: str) -> list[int]:
        """The library asks for tokens of a text only to force them, which ``lark_source`` switches off."""
        raise NotImplementedError("no text is forced")
