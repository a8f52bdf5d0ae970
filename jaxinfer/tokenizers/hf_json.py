"""``tokenizer.json``: the vocabulary, merges and rules of a Hugging Face fast tokenizer in one file."""

from pathlib import Path

import tokenizers

from jaxinfer.tokenizers.huggingface import HuggingFaceTokenizer
from jaxinfer.tokenizers.side_files import read_side_files


def load_tokenizer_json(path: Path) -> HuggingFaceTokenizer:
    """Reads ``tokenizer.json`` at ``path`` and the files beside it.

    BOS is added on the word of the file's own post-processor; where ``tokenizer_config.json`` says ``add_bos_token``
    and the post-processor does not add it, it is added here.

    Raises:
        ValueError: a file cannot be read, or a special token that it names is not in the vocabulary.
    """
    try:
        inner = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower class
        raise ValueError(f"{path} cannot be read as a tokenizer: {error}") from error
    side = read_side_files(path.parent)
    bos_token_id = _token_id(inner, path, "bos_token", side.bos_token)
    eos_token_id = _token_id(inner, path, "eos_token", side.eos_token)
    try:
        return HuggingFaceTokenizer(
            inner,
            bos_token_id=bos_token_id,
            add_bos=bool(side.add_bos_token),
            eos_token_id=eos_token_id,
            chat_template=side.chat_template,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _token_id(inner: tokenizers.Tokenizer, path: Path, key: str, token: str | None) -> int | None:
    if token is None:
        return None
    token_id = inner.token_to_id(token)
    if token_id is None:
        raise ValueError(f"{key} is {token!r}, which the vocabulary of {path} does not have")
    return token_id
