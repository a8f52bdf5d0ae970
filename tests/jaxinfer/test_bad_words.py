"""Which tokens write a word that is not to be written: vLLM's definition, by hand on small vocabularies."""

from pathlib import Path

import pytest

from jaxinfer.bad_words import bad_word_ids
from jaxinfer.tokenizers import load_tokenizer
from jaxinfer.tokenizers.protocol import Tokenizer
from tests.vocabularies import write_byte_fallback_json, write_byte_level_json


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(write_byte_level_json(tmp_path_factory.mktemp("byte level")))


def spellings(tokenizer: Tokenizer, words: list[str]) -> list[list[str]]:
    return [[tokenizer.token_text(token_id) for token_id in ids] for ids in bad_word_ids(tokenizer, words)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["w"], [["w"], ["Ġw"]]),
        (["wow"], [["w", "o", "w"], ["Ġw", "o", "w"]]),
        (["  wow"], [["w", "o", "w"], ["Ġw", "o", "w"]]),  # spaces before it are no part of it
        (["hello"], [["hello"]]),  # after a space it is that space's token and the same one
        (["w w"], [["w", "Ġw"], ["Ġw", "Ġw"]]),
        (["w", "w", " w"], [["w"], ["Ġw"]]),
        (["hell", "w"], [["hell"], ["w"], ["Ġw"]]),
    ],
)
def test_words_of_a_byte_level_vocabulary(byte_level: Tokenizer, words: list[str], expected: list[list[str]]) -> None:
    assert spellings(byte_level, words) == expected


def test_words_of_a_vocabulary_that_begins_each_text_with_a_space(tmp_path: Path) -> None:
    """There the word at the beginning has the space already, and one more is a token more."""
    tokenizer = load_tokenizer(write_byte_fallback_json(tmp_path, decoder="sequence"))
    assert spellings(tokenizer, ["he"]) == [["\u2581he"]]


@pytest.mark.parametrize("word", [" ", "\n\t "])
def test_a_word_of_nothing_but_spaces_is_refused(byte_level: Tokenizer, word: str) -> None:
    with pytest.raises(ValueError, match=r"bad_words has .* no token is left"):
        bad_word_ids(byte_level, ["good", word])
