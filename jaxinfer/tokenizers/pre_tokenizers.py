"""How byte-level vocabularies cut a text before they merge: a GGUF names its pre-tokenizer instead of holding it.

The patterns are those of the models' own files, each named below, and not llama.cpp's, which rewrites some for a
library that knows less of Unicode. What else those files hold and a GGUF does not say goes by the same name: the
normalizer, whether a word that is a token as a whole is merged at all, and whether BOS comes first where the file's own
key is missing (``llama_vocab::impl::load`` of llama.cpp, whose names these are).
"""

from collections.abc import Callable
from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""https://github.com/openai/gpt-2/blob/master/src/encoder.py"""

_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""https://huggingface.co/Qwen/Qwen2-7B-Instruct/blob/main/tokenizer.json; Qwen2.5 and Qwen3 have the same."""

_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
"""https://github.com/meta-llama/llama-models/blob/main/models/llama3/tokenizer.py; up to three digits at once."""

_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""https://huggingface.co/mistralai/Mistral-Nemo-Instruct-2407/blob/main/tokenizer.json, and its tekken.json."""

_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")
"""What llama.cpp does where a converter knew no name: each pattern cuts what the one before it left."""


@dataclass(frozen=True, kw_only=True)
class PreTokenizer:
    """What goes by one name.

    Attributes:
        patterns: regular expressions, one after the other; each cuts every piece into its matches and what is between.
        normalizer: makes what a text passes through before it is cut; None: nothing.
        ignore_merges: a piece that is a token is that token, whatever the merges would make of it.
        add_bos: whether BOS comes first in a file that does not say.
    """

    patterns: tuple[str, ...]
    normalizer: Callable[[], normalizers.Normalizer] | None = None
    ignore_merges: bool = False
    add_bos: bool = False

    def split(self) -> pre_tokenizers.PreTokenizer:
        """Cuts a text, and spells the bytes of each piece as the vocabulary does."""
        cuts = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in self.patterns]
        return pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_AS_GPT2 = PreTokenizer(patterns=(_GPT2,))
_AS_LLAMA3 = PreTokenizer(patterns=(_LLAMA3,), ignore_merges=True, add_bos=True)
_AS_QWEN2 = PreTokenizer(patterns=(_QWEN2,), normalizer=normalizers.NFC)

PRE_TOKENIZERS = {
    "default": PreTokenizer(patterns=_DEFAULT),
    "gpt-2": _AS_GPT2,
    "gpt2": _AS_GPT2,
    "llama-bpe": _AS_LLAMA3,
    "llama-v3": _AS_LLAMA3,
    "llama3": _AS_LLAMA3,
    "qwen2": _AS_QWEN2,
    # https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct/blob/main/tokenizer.json: digits one by one.
    "smollm": PreTokenizer(patterns=(r"\p{N}", _GPT2)),
    "tekken": PreTokenizer(patterns=(_TEKKEN,), ignore_merges=True, add_bos=True),
}
