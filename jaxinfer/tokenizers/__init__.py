"""Text to token ids and back: one protocol, one file per kind of vocabulary."""

from pathlib import Path

from jaxinfer.tokenizers.gguf_vocab import load_gguf_tokenizer
from jaxinfer.tokenizers.hf_json import load_tokenizer_json
from jaxinfer.tokenizers.protocol import TextStream, Tokenizer
from jaxinfer.tokenizers.spm import load_sentencepiece

__all__ = ["TextStream", "Tokenizer", "load_tokenizer"]


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a model: of a GGUF file its own vocabulary, of a directory ``tokenizer.json``, else
    ``tokenizer.model``.

    ``tokenizer.json`` comes first because it holds the whole recipe; a ``tokenizer.model`` beside it lacks the tokens
    that were added later.

    Raises:
        ValueError: there is neither, or a file cannot be read; the message names the file.
    """
    if path.is_file() and path.suffix == ".gguf":
        return load_gguf_tokenizer(path)
    for name, load in (("tokenizer.json", load_tokenizer_json), ("tokenizer.model", load_sentencepiece)):
        if (path / name).is_file():
            return load(path / name)
    raise ValueError(f"no tokenizer at {path}: looked for tokenizer.json and tokenizer.model in it, or a .gguf file")
