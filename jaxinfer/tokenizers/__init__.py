"""Text to token ids and back: one protocol, one file per kind of vocabulary."""

import importlib.util
import logging
from pathlib import Path

from jaxinfer.tokenizers.gguf_vocab import load_gguf_tokenizer
from jaxinfer.tokenizers.hf_json import load_tokenizer_json
from jaxinfer.tokenizers.mistral_files import find_mistral_file
from jaxinfer.tokenizers.protocol import TextStream, Tokenizer
from jaxinfer.tokenizers.side_files import read_side_files
from jaxinfer.tokenizers.spm import load_sentencepiece

__all__ = ["TextStream", "Tokenizer", "load_tokenizer"]

logger = logging.getLogger(__name__)


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a model: of a GGUF file its own vocabulary, of a directory the first of these that is there:

    1. ``tokenizer.json``, which holds the whole recipe; a ``tokenizer.model`` beside it may lack tokens added later.
       So it is also where one of Mistral's own lies beside it, if there is a chat template: a model that was trained
       further has another form of conversations than Mistral's. Without one, Mistral's own is read, which has a form;
    2. one of Mistral's own (see ``jaxinfer.tokenizers.mistral_files``), by mistral-common, with the conversations that
       the model was trained on;
    3. ``tokenizer.model``, plain SentencePiece;
    4. ``tokenizer.gguf``, a GGUF file without tensors: what a converted GGUF file leaves of itself.

    In a ``tokenizer.json`` beside a ``tekken.json`` the pattern that cuts texts is the latter's
    (``jaxinfer.tokenizers.tekken_pattern``).

    Without the extra ``mistral`` a SentencePiece vocabulary of Mistral's is read as a plain one, and a warning says so.

    Raises:
        ValueError: there is none of them, a file cannot be read, or only mistral-common could read it and is not
            installed; the message names the file.
    """
    if path.is_file() and path.suffix == ".gguf":
        return load_gguf_tokenizer(path)
    mistral_file = find_mistral_file(path) if path.is_dir() else None
    if (path / "tokenizer.json").is_file() and not _is_for_conversations(mistral_file):
        return load_tokenizer_json(path / "tokenizer.json")
    if mistral_file is not None:
        return _load_mistral(mistral_file)
    if (path / "tokenizer.model").is_file():
        return load_sentencepiece(path / "tokenizer.model")
    if (path / "tokenizer.gguf").is_file():
        return load_gguf_tokenizer(path / "tokenizer.gguf")
    raise ValueError(
        f"no tokenizer at {path}: looked for tokenizer.json, tekken.json, tokenizer.model.v1 (or a later version), "
        "tokenizer.model and tokenizer.gguf in it, or a .gguf file"
    )


def _is_for_conversations(mistral_file: Path | None) -> bool:
    """Whether a file of Mistral's is read though a ``tokenizer.json`` lies beside it.

    Not by the name ``tokenizer.model`` alone, which is of any version.
    """
    if mistral_file is None or mistral_file.name == "tokenizer.model" or not _has_mistral_common():
        return False
    return read_side_files(mistral_file.parent).chat_template is None


def _has_mistral_common() -> bool:
    return importlib.util.find_spec("mistral_common") is not None


def _load_mistral(path: Path) -> Tokenizer:
    """What imports mistral-common is imported here, where a file needs it: the library is an extra."""
    if not _has_mistral_common():
        return _load_without_mistral_common(path)
    if path.suffix == ".json":
        from jaxinfer.tokenizers.tekken import load_tekken

        return load_tekken(path)
    from jaxinfer.tokenizers.mistral_spm import load_mistral_sentencepiece

    return load_mistral_sentencepiece(path)


def _load_without_mistral_common(path: Path) -> Tokenizer:
    needed = "needs mistral-common: pip install 'jaxinfer[mistral]'"
    if path.suffix == ".json":
        raise ValueError(f"{path} {needed}")
    logger.warning("%s is read as plain SentencePiece; the form of conversations that it is for %s", path, needed)
    return load_sentencepiece(path)
