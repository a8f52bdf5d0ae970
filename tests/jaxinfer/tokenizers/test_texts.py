"""A text that has no UTF-8 is refused by every kind of tokenizer, with the place in the text."""

import pytest

from jaxinfer.tokenizers import load_tokenizer
from tests.vocabularies import train_sentencepiece, write_byte_fallback_json, write_byte_level_json, write_gguf


@pytest.fixture(scope="module", params=["byte-level json", "byte-fallback json", "gguf", "sentencepiece"])
def tokenizer(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    match request.param:
        case "byte-level json":
            return load_tokenizer(write_byte_level_json(folder))
        case "byte-fallback json":
            return load_tokenizer(write_byte_fallback_json(folder, decoder="sequence"))
        case "gguf":
            return load_tokenizer(write_gguf(folder / "m.gguf"))
        case _:
            return load_tokenizer(train_sentencepiece(folder))


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
