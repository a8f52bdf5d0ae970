"""The tokenizer of a converted checkpoint: the source's own files, so that not an id can differ."""

import shutil
from pathlib import Path

from jaxinfer.gguf_header import metadata_alone

TOKENIZER_GGUF = "tokenizer.gguf"

_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "tekken.json",
    "tokenizer.model*",  # with Mistral's versions in the name
    "params.json",  # beside a `tokenizer.model` it says that this is one of Mistral's
    TOKENIZER_GGUF,
)
"""What ``jaxinfer.tokenizers`` looks for in a folder."""


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Copies the files of the tokenizer of the checkpoint ``source`` into ``folder``; of a GGUF file its metadata.

    Raises:
        ValueError: a file cannot be read.
    """
    if source.is_file():
        (folder / TOKENIZER_GGUF).write_bytes(metadata_alone(source))
        return
    for pattern in _FILES:
        for file in source.glob(pattern):
            if file.is_file():
                shutil.copyfile(file, folder / file.name)
