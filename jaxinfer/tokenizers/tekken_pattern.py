"""The pattern by which a ``tokenizer.json`` that was made from a ``tekken.json`` cuts texts.

Many such files that Mistral's models were published with have Llama 3's pattern, which cuts where tekken's does not
(Hindi words into letters, "HelloWorld" not at all), so their ids are not those that the model was trained on.
transformers 5 warns of all files of Mistral's that were written before its version 5.0, and puts tekken's pattern in
where it is asked to (``fix_mistral_regex``). Where ``tekken.json`` lies beside the file there is nothing to guess.
"""

import json
import logging
from pathlib import Path

import tokenizers

from jaxinfer.tokenizers.library_errors import library_errors
from jaxinfer.tokenizers.pre_tokenizers import PreTokenizer

logger = logging.getLogger(__name__)


def use_tekken_pattern(inner: tokenizers.Tokenizer, path: Path) -> None:
    """Lets ``inner``, read from ``path``, cut texts as the ``tekken.json`` beside it says.

    A warning says so where it did not do that already.
    Only a pattern is exchanged for a pattern: a tokenizer that cuts in another way is left as it is, with a warning.

    Raises:
        ValueError: ``tekken.json`` cannot be read, or has no pattern that the library understands; the message names
            it.
    """
    tekken = path.with_name("tekken.json")
    if not tekken.is_file():
        return
    pattern = _read_pattern(tekken)
    match _state(inner):
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": found}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            if found == pattern:
                return
            logger.warning("%s cuts texts by another pattern than %s, whose pattern is used", path, tekken)
            with library_errors(f"{tekken}: config.pattern cannot be used"):
                inner.pre_tokenizer = PreTokenizer(patterns=(pattern,)).split()
        case _:
            logger.warning("%s does not cut texts by a pattern, as %s does; its ids may be others", path, tekken)


def _read_pattern(tekken: Path) -> str:
    with library_errors(f"{tekken} cannot be read as a tokenizer of Mistral's"):
        content = json.loads(tekken.read_text(encoding="utf-8"))
    match content:
        case {"config": {"pattern": str(pattern)}}:
            return pattern
    raise ValueError(f"{tekken} has no text config.pattern; a tekken vocabulary has one")


def _state(inner: tokenizers.Tokenizer) -> object:
    return None if inner.pre_tokenizer is None else json.loads(inner.pre_tokenizer.__getstate__())
