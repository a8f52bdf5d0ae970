"""The kind ``llama`` of a GGUF's vocabulary: SentencePiece from its tokens, scores and types.

Such a file was made from a SentencePiece model, and from its lists the model is made again, so that the library that
defines this encoding does the encoding. What the lists leave out is the same in all vocabularies of the kind: pairs are
merged by score, characters that are not in the vocabulary become bytes, and texts are not normalized, but a space is
put before them.

``add_space_prefix`` says whether that space is put. Converters write the key only where ``tokenizer_config.json`` has
one for it, so most files, of Llama 2 and of every Mistral, lack it, and then it is. Where the space goes in a
conversation is the rule of ``jaxinfer.tokenizers.spm``, whatever file the vocabulary comes from.
"""

import struct
from collections.abc import Sequence

import gguf
import numpy as np
import sentencepiece

from jaxinfer.tokenizers.spm import SentencePieceTokenizer, sentencepiece_errors
from jaxinfer.tokenizers.vocabulary_keys import VocabularyKeys

_SPACE_SYMBOL = "\u2581"
_MAX_FLOAT32 = float(np.finfo(np.float32).max)
_BOS, _EOS = 1, 2
"""llama.cpp takes these ids where a file does not say (``llama_vocab::impl::load``)."""

# Numbers of fields: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto. Types of pieces
# have the same numbers there as in a GGUF.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = 1, 2, 3
_MODEL_TYPE, _BYTE_FALLBACK = 3, 35
_ADD_DUMMY_PREFIX, _REMOVE_EXTRA_WHITESPACES = 3, 4
_BPE = 2
_VARINT, _BYTES, _FLOAT = 0, 2, 5


def build_sentencepiece(keys: VocabularyKeys) -> SentencePieceTokenizer:
    """The tokenizer of a file whose vocabulary is of the kind ``llama``.

    Raises:
        ValueError: a key is missing or malformed, or the library refuses the vocabulary; the message names the file.
    """
    tokens = keys.tokens()
    scores = keys.of_each_token("scores", float, len(tokens))
    types = keys.of_each_token("token_type", int, len(tokens))
    _check(keys, scores, types)
    add_space = keys.optional("add_space_prefix", bool)
    add_bos = keys.optional("add_bos_token", bool) is not False
    bos, eos = keys.token_id("bos", len(tokens)), keys.token_id("eos", len(tokens))
    with sentencepiece_errors(keys.path):
        model = _model(_spellings(tokens, types), scores, types, add_space is not False)
        return SentencePieceTokenizer(
            sentencepiece.SentencePieceProcessor(model_proto=model),
            bos_token_id=_BOS if bos is None else bos,
            eos_token_id=_EOS if eos is None else eos,
            add_bos=add_bos,
            chat_template=keys.chat_template(),
            chat_template_file=keys.path,
            chat_adds_bos=add_bos,
        )


def _check(keys: VocabularyKeys, scores: Sequence[float], types: Sequence[int]) -> None:
    """ValueError for what a SentencePiece model cannot hold."""
    known = set(gguf.TokenType)
    for token_id, (score, kind) in enumerate(zip(scores, types, strict=True)):
        if not abs(score) <= _MAX_FLOAT32:
            raise keys.error("scores", f"has {score} for token {token_id}; it must be a finite float32")
        if kind not in known:
            raise keys.error("token_type", f"has {kind} for token {token_id}; types are 1 to {len(known)}")


def _spellings(tokens: Sequence[str], types: Sequence[int]) -> list[str]:
    """As the library has them: converters write a token that was added later with the spaces of the text it matches."""
    known = set(tokens)

    def spelling(token: str, kind: int) -> str:
        escaped = token.replace(" ", _SPACE_SYMBOL)
        return escaped if kind == gguf.TokenType.USER_DEFINED and escaped not in known else token

    return [spelling(token, kind) for token, kind in zip(tokens, types, strict=True)]


def _model(tokens: Sequence[str], scores: Sequence[float], types: Sequence[int], add_space: bool) -> bytes:
    """A ``ModelProto``, written by hand: the library reads such buffers, but offers nothing that writes them."""
    pieces = b"".join(_message(_PIECES, _piece(*piece)) for piece in zip(tokens, scores, types, strict=True))
    has_bytes = gguf.TokenType.BYTE in types
    trainer = _number(_MODEL_TYPE, _BPE) + _number(_BYTE_FALLBACK, has_bytes)
    normalizer = _number(_ADD_DUMMY_PREFIX, add_space) + _number(_REMOVE_EXTRA_WHITESPACES, False)
    return pieces + _message(_TRAINER, trainer) + _message(_NORMALIZER, normalizer)


def _piece(token: str, score: float, kind: int) -> bytes:
    score_field = _tag(_PIECE_SCORE, _FLOAT) + struct.pack("<f", score)
    return _message(_PIECE_TEXT, token.encode()) + score_field + _number(_PIECE_TYPE, kind)


def _message(number: int, payload: bytes) -> bytes:
    return _tag(number, _BYTES) + _varint(len(payload)) + payload


def _number(number: int, value: int) -> bytes:
    return _tag(number, _VARINT) + _varint(value)


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
