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
    """A space after a control token is the text's own, and the only one; at a text's start, the library adds one."""
    ids = tokenizer.encode("<s> Once upon</s><s> a time", add_special_tokens=False)
    assert ids == [BOS, *library.encode("Once upon"), EOS, BOS, *library.encode("a time")]


@pytest.mark.parametrize("text", ["Once upon", " Once", "  two", "a\nb ", "\n\n", "é🎉", " ", "", "."])
def test_after_a_control_token_text_is_as_in_the_middle(tokenizer, library, text):
    """As after a newline, which this vocabulary writes as a byte and merges with nothing."""
    after_newline = library.encode("\n" + text)[len(library.encode("\n")) :]
    start = library.encode("Tom")
    assert tokenizer.encode(f"<s>{text}", add_special_tokens=False) == [BOS, *after_newline]
    assert tokenizer.encode(f"Tom</s>{text}<s>", add_special_tokens=False) == [*start, EOS, *after_newline, BOS]


def test_without_a_control_token_chat_text_is_as_any(tokenizer, library):
    assert tokenizer.encode("Once", add_special_tokens=False) == library.encode("Once")


def test_a_vocabulary_without_the_space_is_taken_as_it_is(tmp_path):
    """Trained here: it has no newline, control tokens of its own, and settings that must stay."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["hello yellow", "low   owl", "hollow"] * 4),
        model_prefix=str(tmp_path / "tokenizer"),
        vocab_size=24,
        model_type="bpe",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        control_symbols=["[A]", "[B]"],
        minloglevel=2,
    )
    tokenizer = load_tokenizer(tmp_path)
    library = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    a, b = library.piece_to_id(["[A]", "[B]"])
    ids = tokenizer.encode("[A]hello  low[B] owl", add_special_tokens=False)
    assert ids == [a, *library.encode("hello  low"), b, *library.encode(" owl")]


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
