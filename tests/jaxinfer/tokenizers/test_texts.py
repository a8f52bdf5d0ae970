"""A text that has no UTF-8 is refused by every kind of tokenizer, with the place in the text."""

import pytest

from tests.vocabulary_kinds import tokenizer_of_kind


@pytest.fixture(
    scope="module",
    params=["byte-level json", "byte-fallback json", "byte-level gguf", "spm as trained by default"],
)
def tokenizer(request, tmp_path_factory):
    return tokenizer_of_kind(request, tmp_path_factory)


@pytest.mark.parametrize("add_special_tokens", [True, False])
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a\ud800", r"U\+D800 at position 1:"),
        ("\udfff", r"U\+DFFF at position 0:"),
        ("</s>\U0001f999 b\udc00\ud800", r"U\+DC00 at position 7:"),
        ("\ud83e\udd99", r"U\+D83E at position 0:"),
    ],
)
def test_a_lone_surrogate_is_named_with_its_position(tokenizer, text, named, add_special_tokens):
    with pytest.raises(ValueError, match=named):
        tokenizer.encode(text, add_special_tokens=add_special_tokens)


def test_the_neighbours_of_surrogates_are_text(tokenizer):
    text = "\ud7ff\ue000\U0001f999"
    assert tokenizer.decode(tokenizer.encode(text)) == text
