"""The vocabulary inside a GGUF file, of the kind ``gpt2``: byte-level BPE from its tokens and merges.

A GGUF names its pre-tokenizer instead of holding it, so the table of names is here. The normalizer goes by the same
name: the models' own tokenizers have it, and the GGUF does not say.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from jaxinfer.tokenizers.gguf_metadata import read_gguf_metadata
from jaxinfer.tokenizers.huggingface import HuggingFaceTokenizer

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
    End tokens are ``eos_token_id`` and, where it is there, ``eot_token_id``.

    Raises:
        ValueError: the file cannot be read, has no vocabulary, or one of a kind or pre-tokenizer that is not known;
            the message names the file, the key and what is allowed.
    """
    metadata = read_gguf_metadata(path)
    kind = _required(path, metadata, "tokenizer.ggml.model")
    if kind != "gpt2":
        raise ValueError(f"{path}: tokenizer.ggml.model is {kind!r}; the kind that can be read is 'gpt2'")
    tokens = _required(path, metadata, "tokenizer.ggml.tokens")
    inner = _build(path, metadata, tokens)
    named_ids = {
        name: metadata[key] for name in ("bos", "eos", "eot") if (key := f"tokenizer.ggml.{name}_token_id") in metadata
    }
    for name, token_id in named_ids.items():
        if token_id >= len(tokens):
            raise ValueError(f"{path}: {name}_token_id is {token_id}; the vocabulary has ids 0 to {len(tokens) - 1}")
    return HuggingFaceTokenizer(
        inner,
        bos_token_id=named_ids.get("bos"),
        add_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
        eos_token_ids=tuple(dict.fromkeys(named_ids[name] for name in ("eos", "eot") if name in named_ids)),
        chat_template=metadata.get("tokenizer.chat_template"),
    )


def _build(path: Path, metadata: dict[str, Any], tokens: list[str]) -> tokenizers.Tokenizer:
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise ValueError(f"{path}: tokenizer.ggml.tokens has {len(tokens)} tokens of which {len(vocab)} differ")
    merges = [tuple(merge.split(" ")) for merge in _required(path, metadata, "tokenizer.ggml.merges")]
    pre = _required(path, metadata, "tokenizer.ggml.pre")
    if pre not in _PRE_TOKENIZERS:
        raise ValueError(f"{path}: tokenizer.ggml.pre is {pre!r}; known are {', '.join(_PRE_TOKENIZERS)}")
    try:
        inner = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
    except Exception as error:  # the library raises no narrower class
        raise ValueError(f"{path}: tokenizer.ggml.merges do not fit tokenizer.ggml.tokens: {error}") from error
    _PRE_TOKENIZERS[pre](inner)
    inner.decoder = decoders.ByteLevel()
    types = _required(path, metadata, "tokenizer.ggml.token_type")
    if len(types) != len(tokens):
        raise ValueError(f"{path}: tokenizer.ggml.token_type has {len(types)} entries for {len(tokens)} tokens")
    inner.add_tokens(
        [
            tokenizers.AddedToken(token, special=kind == _CONTROL, normalized=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind in (_CONTROL, _USER_DEFINED)
        ]
    )
    return inner


def _required(path: Path, metadata: dict[str, Any], key: str) -> Any:
    if key not in metadata:
        raise ValueError(f"{path} has no {key}, which a vocabulary of the kind 'gpt2' needs")
    return metadata[key]
