"""The vocabulary inside a GGUF file, of the kind ``gpt2``: byte-level BPE from its tokens and merges.

A GGUF names its pre-tokenizer instead of holding it, so the table of names is here. The normalizer goes by the same
name: the models' own tokenizers have it, and the GGUF does not say.
"""

from collections.abc import Callable
from pathlib import Path

import gguf
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from jaxinfer.gguf_header import GGUFArray, read_header
from jaxinfer.tokenizers.huggingface import HuggingFaceTokenizer
from jaxinfer.tokenizers.library_errors import library_errors

_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONTROL, _USER_DEFINED = gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED


def _use_gpt2(inner: tokenizers.Tokenizer) -> None:
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)


def _use_smollm(inner: tokenizers.Tokenizer) -> None:
    digits = pre_tokenizers.Digits(individual_digits=True)
    inner.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def _use_qwen2(inner: tokenizers.Tokenizer) -> None:
    split = pre_tokenizers.Split(Regex(_QWEN2_SPLIT), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.normalizer = normalizers.NFC()
    inner.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])


_PRE_TOKENIZERS: dict[str, Callable[[tokenizers.Tokenizer], None]] = {
    "gpt-2": _use_gpt2,
    "gpt2": _use_gpt2,
    "qwen2": _use_qwen2,
    "smollm": _use_smollm,
}


def load_gguf_tokenizer(path: Path) -> HuggingFaceTokenizer:
    """Builds the tokenizer of the GGUF file at ``path``.

    Control tokens are special (decoded to nothing), user-defined ones are text; both are recognised in what is encoded.

    Raises:
        ValueError: the file cannot be read, has no vocabulary, or one of a kind or pre-tokenizer that is not known;
            the message names the file, the key and what is allowed.
    """
    header = _Header(path)
    kind = header.value("model", str)
    if kind != "gpt2":
        raise ValueError(f"{path}: tokenizer.ggml.model is {kind!r}; the kind that can be read is 'gpt2'")
    tokens = header.items("tokens", str)
    return HuggingFaceTokenizer(
        _build(header, tokens),
        bos_token_id=header.token_id("bos", len(tokens)),
        add_bos=header.optional("tokenizer.ggml.add_bos_token", bool) or False,
        eos_token_id=header.token_id("eos", len(tokens)),
        chat_template=header.optional("tokenizer.chat_template", str),
    )


def _build(header: "_Header", tokens: list[str]) -> tokenizers.Tokenizer:
    pre = header.value("pre", str)
    if pre not in _PRE_TOKENIZERS:
        raise ValueError(f"{header.path}: tokenizer.ggml.pre is {pre!r}; known are {', '.join(_PRE_TOKENIZERS)}")
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise ValueError(f"{header.path}: of the {len(tokens)} tokenizer.ggml.tokens only {len(vocab)} differ")
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in header.items("merges", str))]
    types = header.items("token_type", int)
    if len(types) != len(tokens):
        raise ValueError(f"{header.path}: tokenizer.ggml.token_type has {len(types)} entries for {len(tokens)} tokens")
    with library_errors(f"{header.path}: tokenizer.ggml.merges do not fit its tokens"):
        inner = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
    _PRE_TOKENIZERS[pre](inner)
    inner.decoder = decoders.ByteLevel()
    inner.add_tokens(
        [
            tokenizers.AddedToken(token, special=kind == _CONTROL, normalized=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind in (_CONTROL, _USER_DEFINED)
        ]
    )
    return inner


class _Header:
    """The metadata of one file, with types checked: any writer may have put anything under a key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._metadata = read_header(path).metadata

    def optional[T](self, key: str, kind: type[T]) -> T | None:
        value = self._metadata.get(key)
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"{self.path}: {key} is {value!r}; its type must be {kind.__name__}")
        return value

    def value[T](self, name: str, kind: type[T]) -> T:
        value = self.optional(f"tokenizer.ggml.{name}", kind)
        if value is None:
            raise ValueError(f"{self.path} has no tokenizer.ggml.{name}, which a vocabulary of the kind 'gpt2' needs")
        return value

    def items[T](self, name: str, kind: type[T]) -> list[T]:
        array = self.value(name, GGUFArray)
        try:
            items = array.items()
        except ValueError as error:
            raise ValueError(f"{self.path}: tokenizer.ggml.{name}: {error}") from error
        wanted: list[T] = [item for item in items if isinstance(item, kind)]
        if len(wanted) != len(items):
            raise ValueError(f"{self.path}: the items of tokenizer.ggml.{name} must be of type {kind.__name__}")
        return wanted

    def token_id(self, name: str, vocab_size: int) -> int | None:
        key = f"tokenizer.ggml.{name}_token_id"
        token_id = self.optional(key, int)
        if token_id is not None and not 0 <= token_id < vocab_size:
            raise ValueError(f"{self.path}: {key} is {token_id}; the vocabulary has ids 0 to {vocab_size - 1}")
        return token_id
