"""``tokenizer.json``: the vocabulary, merges and rules of a Hugging Face fast tokenizer in one file."""

import json
from pathlib import Path

import tokenizers

from jaxinfer.tokenizers.growth import check_growth
from jaxinfer.tokenizers.huggingface import HuggingFaceTokenizer
from jaxinfer.tokenizers.library_errors import library_errors
from jaxinfer.tokenizers.side_files import read_side_files
from jaxinfer.tokenizers.tekken_pattern import use_tekken_pattern


def load_tokenizer_json(path: Path) -> HuggingFaceTokenizer:
    """Reads ``tokenizer.json`` at ``path`` and the files beside it.

    BOS is what a side file says, else the special token that the post-processor puts before every text.

    It is added on the post-processor's word, which is the recipe that came with the vocabulary. ``add_bos_token`` false
    in ``tokenizer_config.json`` does not take it away: transformers 5 drops the key where there is a
    ``tokenizer.json``. True where the post-processor adds none is obeyed, unlike there: the model wants a BOS, and
    version 4's Llama class, which made a post-processor of its own by this key, gave it one. A conversation has the
    BOS that its template writes and no other, in every version of transformers.

    Where a ``tekken.json`` lies beside it, texts are cut by that file's pattern (``tekken_pattern``).

    Padding and truncation that the file brings are switched off: they are settings of a batch at the time of writing,
    and would change the prompt.

    Raises:
        ValueError: a file cannot be read, a special token that it names is not in the vocabulary, or its steps could
            make a text much longer (``growth``).
    """
    inner = _read(path)
    use_tekken_pattern(inner, path)
    side = read_side_files(path.parent)
    bos_token_id = _token_id(inner, path, "bos_token", side.bos_token)
    if bos_token_id is None:
        with library_errors(f"{path} cannot encode a text of one letter"):
            bos_token_id = _put_first(inner)
    eos_token_id = _token_id(inner, path, "eos_token", side.eos_token)
    try:
        return HuggingFaceTokenizer(
            inner,
            bos_token_id=bos_token_id,
            add_bos=bool(side.add_bos_token),
            eos_token_id=eos_token_id,
            chat_template=side.chat_template,
            chat_template_file=side.chat_template_file,
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _read(path: Path) -> tokenizers.Tokenizer:
    with library_errors(f"{path} cannot be read as a tokenizer"):
        text = path.read_text(encoding="utf-8")
        check_growth(json.loads(text))
        inner = tokenizers.Tokenizer.from_str(text)
        inner.no_padding()
        inner.no_truncation()
    return inner


def _put_first(inner: tokenizers.Tokenizer) -> int | None:
    """The special token that the post-processor puts before every text: an empty one, and one that is not.

    On the empty text alone, a token that it puts last would look the same.
    """
    empty, letter = inner.encode("").ids, inner.encode("a").ids
    if not empty or empty[:1] != letter[:1]:
        return None
    token = inner.get_added_tokens_decoder().get(empty[0])
    return empty[0] if token is not None and token.special else None


def _token_id(inner: tokenizers.Tokenizer, path: Path, key: str, token: str | None) -> int | None:
    if token is None:
        return None
    token_id = inner.token_to_id(token)
    if token_id is None:
        raise ValueError(f"{key} is {token!r}, which the vocabulary of {path} does not have")
    return token_id
