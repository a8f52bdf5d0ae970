"""What one token stands for by itself, for people."""

from jaxinfer.tokenizers.protocol import Tokenizer


def text_of_token(tokenizer: Tokenizer, token_id: int) -> str:
    """Its text in the middle of a text, where a SentencePiece keeps its space; a special token's spelling; else "".

    Bytes that are no whole character become U+FFFD.
    """
    stream = tokenizer.text_stream([token_id])  # some token before it, so that it does not begin the text
    before = stream.pending()
    text = stream.push(token_id) + stream.pending()
    return text.removeprefix(before) or tokenizer.token_text(token_id)
