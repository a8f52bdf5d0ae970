"""What a token adds in the middle of a text, in vocabularies of every kind, against what decoding says."""

import pytest

from jaxinfer.tokenizers import Tokenizer, load_tokenizer
from jaxinfer.tokenizers.spelling import text_of_token
from tests.vocabularies import (
    smollm2_path,
)
from tests.vocabulary_kinds import tokenizer_of_kind

KINDS = [
    "byte-level json",
    "json with a gap",
    "metaspace json",
    "byte-level gguf",
    "small spm in gguf",
    "spm as trained by default",
    "mistral v3",
    "tekken",
]


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tokenizer_of_kind(request, tmp_path_factory)


def test_bytes_are_what_decoding_adds_after_a_letter(tokenizer):
    before = tokenizer.encode("he", add_special_tokens=False)
    beginning = tokenizer.decode(before)
    step = max(1, tokenizer.vocab_size // 2_000)
    for token_id in [*range(0, tokenizer.vocab_size + 3, step), *range(min(300, tokenizer.vocab_size))]:
        added = tokenizer.token_bytes(token_id).decode("utf-8", "replace")
        assert beginning + added == tokenizer.decode([*before, token_id]), token_id


def test_bytes_of_a_text_joined_are_the_text(tokenizer):
    text = "he hello lo. é \U0001f600 \u4e16"
    data = b"".join(map(tokenizer.token_bytes, tokenizer.encode(text, add_special_tokens=False)))
    assert data.decode().removeprefix(" ") == text


def test_special_tokens_and_ids_without_a_token_have_none(tokenizer):
    special = [tokenizer.token_id(spelling) for spelling in ("<s>", "</s>")]
    for token_id in [*special, tokenizer.vocab_size, tokenizer.vocab_size + 10**6]:
        assert token_id is not None
        assert tokenizer.token_bytes(token_id) == b""
    for bad in (-1, 1.5, True, "a"):
        with pytest.raises(ValueError, match="no token id"):
            tokenizer.token_bytes(bad)


def test_every_byte_can_be_written(tokenizer):
    known = {tokenizer.token_bytes(token_id) for token_id in range(min(tokenizer.vocab_size, 1500))}
    assert {bytes([byte]) for byte in range(256)} <= known


def test_a_token_is_spelled_by_its_text_or_its_name():
    smollm2 = load_tokenizer(smollm2_path())
    hello = smollm2.encode(" hello", add_special_tokens=False)
    assert [text_of_token(smollm2, token_id) for token_id in hello] == [" hello"]
    assert text_of_token(smollm2, smollm2.eos_token_id) == smollm2.token_text(smollm2.eos_token_id)
