"""A ``tokenizer.json`` beside a ``tekken.json``: its pattern is exchanged, and nothing else of it is."""

import logging

import pytest
import tokenizers
from tokenizers import Regex, pre_tokenizers

from jaxinfer.tokenizers import load_tokenizer
from jaxinfer.tokenizers.pre_tokenizers import PRE_TOKENIZERS
from tests.mistral_files import small_tekken, write_tekken
from tests.vocabularies import BYTE_LEVEL_TOKENS, write_byte_level_json

LETTERS = "."
"""A pattern that cuts every text into its letters, so that nothing is merged."""
WORDS = small_tekken()["config"]["pattern"]


def cut(pattern, *, behavior="isolated", invert=False, **byte_level):
    flags = {"add_prefix_space": False, "use_regex": False} | byte_level
    split = pre_tokenizers.Split(Regex(pattern), behavior=behavior, invert=invert)
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(**flags)])


def write(folder, pre_tokenizer, pattern):
    """Has a chat template, so that ``tokenizer.json`` is what counts."""
    write_byte_level_json(folder, chat_template="{{ messages[0].content }}", bos_token="<s>")
    inner = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    inner.pre_tokenizer = pre_tokenizer
    inner.save(str(folder / "tokenizer.json"))
    return write_tekken(folder, {"config": {"pattern": pattern}})


def ids_of(*pieces):
    return [BYTE_LEVEL_TOKENS.index(piece) for piece in pieces]


def test_the_pattern_of_tekken_cuts(tmp_path, caplog):
    tokenizer = load_tokenizer(write(tmp_path, cut(WORDS), LETTERS))
    assert tokenizer.encode("hello w") == ids_of(*"hello", "Ġ", "w")
    assert tokenizer.encode("<s>hé</s>") == ids_of("<s>", "h", "Ã", "©", "</s>")
    assert (tokenizer.decode(tokenizer.encode("hello wé")), tokenizer.can_chat) == ("hello wé", True)
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert all(str(tmp_path / name) in record.getMessage() for name in ("tokenizer.json", "tekken.json"))


def test_the_same_pattern_is_no_news(tmp_path, caplog):
    tokenizer = load_tokenizer(write(tmp_path, cut(WORDS), WORDS))
    assert tokenizer.encode("hello w") == ids_of("hello", "Ġw")
    assert caplog.records == []


def test_without_tekken_the_files_own_pattern_cuts(tmp_path, caplog):
    folder = write(tmp_path, cut(LETTERS), WORDS)
    (folder / "tekken.json").unlink()
    assert load_tokenizer(folder).encode("hello") == ids_of(*"hello")
    assert caplog.records == []


@pytest.mark.parametrize(
    "pre_tokenizer",
    [
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        cut(WORDS, behavior="removed", invert=True),
        cut(WORDS, use_regex=True),
        pre_tokenizers.Sequence([pre_tokenizers.Digits(), cut(WORDS)]),
    ],
    ids=["bytes alone", "inverted", "another pattern inside", "more steps"],
)
def test_what_is_no_such_pattern_stays_with_a_warning(tmp_path, pre_tokenizer, caplog):
    tokenizer = load_tokenizer(write(tmp_path, pre_tokenizer, LETTERS))
    assert tokenizer.encode("hello") == ids_of("hello")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"config": 3}', '{"config": {"pattern": 3}}', '{"config": {"pattern": "("}}', "[" * 100_000],
    ids=lambda content: content[:30],
)
def test_a_wrong_tekken_is_named(tmp_path, content):
    folder = write(tmp_path, cut(WORDS), LETTERS)
    (folder / "tekken.json").write_text(content)
    with pytest.raises(ValueError, match=r"tekken\.json"):
        load_tokenizer(folder)


def test_the_published_case(tmp_path):
    """Of Mistral Small 3.1: Llama 3's pattern cuts Hindi at its vowel signs, tekken's does not."""
    [llama3], [tekken] = PRE_TOKENIZERS["llama3"].patterns, PRE_TOKENIZERS["tekken"].patterns
    inner = load_tokenizer(write(tmp_path, cut(llama3), tekken))._inner
    words = [len(piece) for piece, _ in inner.pre_tokenizer.pre_tokenize_str("नमस्ते दुनिया")]
    assert words == [len("नमस्ते".encode()), len(" दुनिया".encode())]
