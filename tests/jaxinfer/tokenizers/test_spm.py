"""SentencePiece vocabularies: BOS first, the library's own encoding, chat text with its control tokens."""

import shutil

import pytest
import sentencepiece

from jaxinfer.tokenizers import load_tokenizer

BOS, EOS = 1, 2


@pytest.fixture(scope="module")
def folder(shared_data):
    return shared_data / "stories260K-hf"


@pytest.fixture(scope="module")
def tokenizer(folder):
    return load_tokenizer(folder)


@pytest.fixture(scope="module")
def library(folder):
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))


TEXTS = ["Once upon a time", " two  spaces ", "", "é🎉 \x00", "<s>", "a\n\nb"]


@pytest.mark.parametrize("text", TEXTS)
def test_bos_then_what_the_library_gives(tokenizer, library, text):
    assert tokenizer.encode(text) == [BOS, *library.encode(text)]
    assert tokenizer.decode(tokenizer.encode(text)) == library.decode(library.encode(text))


def test_greedy_text_survives(tokenizer, shared_data):
    text = (shared_data / "stories260K-greedy-200.txt").read_text().removesuffix("\n")
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_what_the_vocabulary_says_of_itself(tokenizer):
    assert (tokenizer.vocab_size, tokenizer.bos_token_id, tokenizer.eos_token_id) == (512, BOS, EOS)
    assert (tokenizer.token_text(BOS), tokenizer.token_text(EOS), tokenizer.chat_template) == ("<s>", "</s>", None)


def test_chat_text_brings_its_control_tokens(tokenizer, library):
    ids = tokenizer.encode("<s>Once upon</s><s>a time", add_special_tokens=False)
    assert ids == [BOS, *library.encode("Once upon"), EOS, BOS, *library.encode("a time")]
    assert tokenizer.encode("Once", add_special_tokens=False) == library.encode("Once")


def test_files_beside_it_are_read(folder, tmp_path, library):
    shutil.copy(folder / "tokenizer.model", tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 2]}')
    (tmp_path / "tokenizer_config.json").write_text('{"add_bos_token": false, "chat_template": "from the config"}')
    (tmp_path / "chat_template.jinja").write_text("from the file")
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.eos_token_id == EOS  # the list beside it is the model's
    assert tokenizer.encode("Once") == library.encode("Once")
    assert tokenizer.chat_template == "from the file"


def test_a_foreign_file_is_named(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"no model at all")
    with pytest.raises(ValueError, match=r"tokenizer\.model"):
        load_tokenizer(tmp_path)
