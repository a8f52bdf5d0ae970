"""The vocabulary inside a GGUF file; each kind has a module of its own."""

import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path

from jaxinfer.tokenizers.gguf_byte_level import build_byte_level
from jaxinfer.tokenizers.gguf_sentencepiece import build_sentencepiece
from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.tokenizers.vocabulary_keys import VocabularyKeys

_KINDS: Mapping[str, Callable[[VocabularyKeys], Tokenizer]] = {"gpt2": build_byte_level, "llama": build_sentencepiece}


def load_gguf_tokenizer(path: Path) -> Tokenizer:
    """Builds the tokenizer of the GGUF file at ``path``.

    ``add_eos_token`` is not obeyed: what is encoded here is there to be continued.

    ``add_bos_token`` holds for conversations too. llama.cpp, for which these files are written, puts BOS before what a
    template wrote, so some exporters take it out of the template; where it was left there, it is not put again.

    Raises:
        ValueError: the file cannot be read, has no vocabulary, or one of a kind or pre-tokenizer that is not known;
            the message names the file, the key and what is allowed.
    """
    keys = VocabularyKeys(path)
    kind = keys.value("model", str)
    if kind not in _KINDS:
        raise keys.error(
            "model", f"is {reprlib.repr(kind)}; the kinds that can be read are {', '.join(map(repr, _KINDS))}"
        )
    return _KINDS[kind](keys)
