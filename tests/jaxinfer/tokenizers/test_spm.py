"""SentencePiece vocabularies: BOS first, the library's own encoding, chat text with its control tokens."""

import shutil

import pytest
import sentencepiece

from jaxinfer.tokenizers import load_tokenizer
from tests.vocabularies import train_sentencepiece

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
    """After a control token comes one space, the text's own or the library's; at a text's start, the library's."""
    once, time = library.encode("Once upon"), library.encode("a time")
    for text in ("<s> Once upon</s><s> a time", "<s>Once upon</s><s>a time"):
        assert tokenizer.encode(text, add_special_tokens=False) == [BOS, *once, EOS, BOS, *time]


@pytest.mark.parametrize("text", ["Once upon", "a\nb ", "\n\n", "é🎉", "", "."])
def test_after_a_control_token_comes_a_text_of_its_own(tokenizer, library, text):
    """As Llama's makers encode turn by turn: https://github.com/meta-llama/llama/blob/main/llama/generation.py"""
    assert tokenizer.encode(f"<s>{text}", add_special_tokens=False) == [BOS, *library.encode(text)]
    ids = tokenizer.encode(f"Tom</s>{text}<s>", add_special_tokens=False)
    assert ids == [*library.encode("Tom"), EOS, *library.encode(text), BOS]


@pytest.mark.parametrize("text", [" Once", "  two", " ", " \n", "\u2581Once"])
def test_a_text_that_brings_its_space_gets_no_second(tokenizer, library, text):
    """As after a newline, which this vocabulary writes as a byte and merges with nothing."""
    after_newline = library.encode("\n" + text)[len(library.encode("\n")) :]
    assert tokenizer.encode(f"<s>{text}</s>", add_special_tokens=False) == [BOS, *after_newline, EOS]


def test_transformers_gives_these_ids(tokenizer):
    """``LlamaTokenizer.from_pretrained(folder, legacy=True)`` of transformers 5.24; with false, "Once" is three tokens
    and nothing is put before "\n".
    """
    once, space, newline, to, m = 403, 410, 13, 434, 287
    for text, ids in {
        "<s>Once</s>\nTom": [BOS, once, EOS, space, newline, to, m],
        "<s>  two": [BOS, space, 259, 424, 414],
        "</s> <s>": [EOS, space, BOS],
        "Once": [once],
    }.items():
        assert tokenizer.encode(text, add_special_tokens=False) == ids


def test_a_vocabulary_that_drops_spaces_puts_its_own(tmp_path):
    """As the library trains by default: of any number of spaces one is left."""
    tokenizer = load_tokenizer(train_sentencepiece(tmp_path))
    library = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    for text in ("hello", " hello", "  hello"):
        assert tokenizer.encode(f"<s>{text}", add_special_tokens=False) == [BOS, *library.encode("hello")]


# What Llama 2's folder has in tokenizer_config.json, and the part of Mistral's first template that is the same.
LLAMA2_TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'user' %}{{ bos_token + '[INST] ' + message.content.strip() + "
    "' [/INST]' }}{% else %}{{ ' ' + message.content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)


def test_conversations_have_the_ids_of_llamas_makers(folder, tmp_path, library):
    """They encode the text of a question and its answer at once, BOS before and EOS after it."""
    shutil.copy(folder / "tokenizer.model", tmp_path)
    (tmp_path / "chat_template.jinja").write_text(LLAMA2_TEMPLATE)
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')
    messages = [
        {"role": "user", "content": "Tell me"},
        {"role": "assistant", "content": "Once upon a time"},
        {"role": "user", "content": "Go on"},
    ]
    first = library.encode("[INST] Tell me [/INST] Once upon a time ")
    expected = [BOS, *first, EOS, BOS, *library.encode("[INST] Go on [/INST]")]
    assert load_tokenizer(tmp_path).encode_chat(messages).token_ids == expected


def test_a_folders_template_is_its_own_on_bos(folder, tmp_path, library):
    """As in transformers, whose ``apply_chat_template`` adds no special token. A GGUF is another matter."""
    shutil.copy(folder / "tokenizer.model", tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (tmp_path / "tokenizer_config.json").write_text('{"add_bos_token": true}')
    ids = load_tokenizer(tmp_path).encode_chat([{"role": "user", "content": "Once"}]).token_ids
    assert ids == library.encode("Once")


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
