"""The kind ``gpt2`` of a GGUF's vocabulary: byte-level BPE from its tokens and merges."""

import logging
import reprlib
from collections.abc import Sequence

import gguf
import tokenizers
from tokenizers import decoders, models

from jaxinfer.tokenizers.huggingface import HuggingFaceTokenizer
from jaxinfer.tokenizers.library_errors import library_errors
from jaxinfer.tokenizers.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from jaxinfer.tokenizers.vocabulary_keys import VocabularyKeys

logger = logging.getLogger(__name__)

_CONTROL, _USER_DEFINED = gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED


def build_byte_level(keys: VocabularyKeys) -> HuggingFaceTokenizer:
    """The tokenizer of a file whose vocabulary is of the kind ``gpt2``.

    Control tokens are special (decoded to nothing), user-defined ones are text; both are recognised in what is encoded.

    An early file names no pre-tokenizer. As llama.cpp does (``llama_vocab::impl::load``), its texts are then cut in the
    way called "default", with a warning: the model was hardly trained with texts cut so.

    Raises:
        ValueError: a key is missing or malformed, the pre-tokenizer is not known, or the merges do not fit the tokens;
            the message names the file and the key.
    """
    pre = _name_of_pre_tokenizer(keys)
    if pre not in PRE_TOKENIZERS:
        raise keys.error("pre", f"is {reprlib.repr(pre)}; known are {', '.join(PRE_TOKENIZERS)}")
    tokens = keys.tokens()
    said = keys.optional("add_bos_token", bool)
    add_bos = PRE_TOKENIZERS[pre].add_bos if said is None else said
    return HuggingFaceTokenizer(
        _build(keys, tokens, PRE_TOKENIZERS[pre]),
        bos_token_id=keys.token_id("bos", len(tokens)),
        add_bos=add_bos,
        eos_token_id=keys.token_id("eos", len(tokens)),
        chat_template=keys.chat_template(),
        chat_template_file=keys.path,
        chat_adds_bos=add_bos,
    )


def _name_of_pre_tokenizer(keys: VocabularyKeys) -> str:
    name = keys.optional("pre", str)
    if not name:
        logger.warning(
            "%s does not say how its vocabulary cuts texts (tokenizer.ggml.pre), so they are cut in the way called "
            "'default'; its answers will be worse than the model's. Convert the model once more",
            keys.path,
        )
    return name or "default"


def _build(keys: VocabularyKeys, tokens: Sequence[str], pre: PreTokenizer) -> tokenizers.Tokenizer:
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in keys.items("merges", str))]
    types = keys.of_each_token("token_type", int, len(tokens))
    with library_errors(f"{keys.path}: tokenizer.ggml.merges do not fit its tokens"):
        inner = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre.ignore_merges))
    inner.pre_tokenizer = pre.split()
    if pre.normalizer is not None:
        inner.normalizer = pre.normalizer()
    inner.decoder = decoders.ByteLevel()
    inner.add_tokens(
        [
            tokenizers.AddedToken(token, special=kind == _CONTROL, normalized=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind in (_CONTROL, _USER_DEFINED)
        ]
    )
    return inner
