"""What one token stands for by itself, for people."""

from jaxinfer.tokenizers.protocol import Tokenizer


def text_of_token(tokenizer: Tokenizer, token_id: int) -> str:
    """Its text in the middle of a text, where a SentencePiece keeps its space; a special token's spelling; else "".

    Bytes that are no whole character become U+FFFD.
    """
    return tokenizer.token_bytes(token_id).decode("utf-8", "replace") or tokenizer.token_text(token_id)
