"""Which of a folder's files is read, and by whom; hostile files of Mistral's."""

import json
import logging
import sys

import pytest

from jaxinfer.tokenizers import load_tokenizer
from tests.mistral_files import FILES, mistral_folder, small_tekken, write_tekken
from tests.vocabularies import write_byte_level_json

pytest.importorskip("mistral_common")

from mistral_common.tokens.tokenizers.tekken import Tekkenizer

USER = [{"role": "user", "content": "Hello"}]
VERSIONED = [version for version in FILES if version != "tekken"]


def kind(tokenizer):
    return type(tokenizer).__name__


MISTRALS_OWN = {"v3": "MistralSentencePieceTokenizer", "tekken": "TekkenTokenizer"}


@pytest.mark.parametrize("version", MISTRALS_OWN)
def test_a_tokenizer_json_with_a_template_comes_first(tmp_path, version):
    """What trained the model further has written both."""
    folder = mistral_folder(write_byte_level_json(tmp_path, chat_template="{{ messages[0].content }}"), version)
    tokenizer = load_tokenizer(folder)
    assert kind(tokenizer) == "HuggingFaceTokenizer"
    assert tokenizer.encode_chat(USER).text == "Hello"


@pytest.mark.parametrize("version", MISTRALS_OWN)
def test_without_a_template_mistrals_own_comes_first(tmp_path, version):
    folder = mistral_folder(write_byte_level_json(tmp_path), version)
    assert kind(load_tokenizer(folder)) == MISTRALS_OWN[version]
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert kind(load_tokenizer(folder)) == "HuggingFaceTokenizer"


@pytest.mark.parametrize("version", MISTRALS_OWN)
def test_without_the_extra_a_tokenizer_json_comes_first(tmp_path, version, monkeypatch):
    folder = mistral_folder(write_byte_level_json(tmp_path), version)
    hide_mistral_common(monkeypatch)
    assert kind(load_tokenizer(folder)) == "HuggingFaceTokenizer"


def test_a_name_without_a_version_never_comes_before_a_tokenizer_json(tmp_path):
    folder = mistral_folder(write_byte_level_json(tmp_path), "v1", name="tokenizer.model")
    (folder / "params.json").write_text("{}")
    assert kind(load_tokenizer(folder)) == "HuggingFaceTokenizer"


def test_tekken_comes_before_the_sentencepiece_files(tmp_path):
    folder = write_tekken(mistral_folder(tmp_path, "v3"), small_tekken())
    assert kind(load_tokenizer(folder)) == "TekkenTokenizer"


def test_the_highest_version_is_read(tmp_path):
    """Names of copies are no versions. The seventh version alone has a control token for the system prompt."""
    for version in ("v7", "v2"):
        mistral_folder(tmp_path, version)
    for name in ("tokenizer.model.v9.bak", "tokenizer.model.vx", "tokenizer.model"):
        (tmp_path / name).write_bytes(b"not to be read")
    assert load_tokenizer(tmp_path).token_id("[SYSTEM_PROMPT]") is not None


def test_an_image_version_is_one_of_its_version(tmp_path):
    mistral_folder(tmp_path, "v7", name="tokenizer.model.v7m1")
    ids = load_tokenizer(tmp_path).encode_chat(USER).token_ids
    (tmp_path / "tokenizer.model.v7m1").rename(tmp_path / "tokenizer.model.v7")
    assert load_tokenizer(tmp_path).encode_chat(USER).token_ids == ids


def test_beside_params_json_a_plain_name_is_the_first_version(tmp_path):
    folder = mistral_folder(tmp_path / "mistral", "v1", name="tokenizer.model")
    plain = load_tokenizer(folder)
    assert (kind(plain), plain.can_chat) == ("SentencePieceTokenizer", False)
    (folder / "params.json").write_text("{}")
    named = load_tokenizer(mistral_folder(tmp_path / "named", "v1"))
    assert load_tokenizer(folder).encode_chat(USER) == named.encode_chat(USER)


def test_a_plain_name_with_a_later_vocabulary_cannot_chat(tmp_path, caplog):
    (mistral_folder(tmp_path, "v3", name="tokenizer.model") / "params.json").write_text("{}")
    with caplog.at_level(logging.WARNING):
        tokenizer = load_tokenizer(tmp_path)
    assert not tokenizer.can_chat
    assert [str(tmp_path / "tokenizer.model") in record.getMessage() for record in caplog.records] == [True]
    assert tokenizer.encode("Hello")[0] == tokenizer.bos_token_id


@pytest.mark.parametrize(("version", "name"), [("v1", "tokenizer.model.v3"), ("v3", "tokenizer.model.v1")])
def test_a_name_that_does_not_fit_its_vocabulary_is_refused(tmp_path, version, name):
    with pytest.raises(ValueError, match=rf"{name} is by its name of Mistral's version {name[-2:]}, but"):
        load_tokenizer(mistral_folder(tmp_path, version, name=name))


def test_an_unknown_version_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"tokenizer\.model\.v99 cannot be read"):
        load_tokenizer(mistral_folder(tmp_path, "v7", name="tokenizer.model.v99"))


def hide_mistral_common(monkeypatch):
    """As where the extra is not installed: a module whose entry is None is one that is not there."""
    monkeypatch.setitem(sys.modules, "mistral_common", None)


def test_without_the_extra_tekken_names_it(tmp_path, monkeypatch):
    folder = write_tekken(tmp_path, small_tekken())
    hide_mistral_common(monkeypatch)
    with pytest.raises(ValueError, match=r"tekken\.json needs mistral-common: pip install 'jaxinfer\[mistral\]'"):
        load_tokenizer(folder)


@pytest.mark.parametrize("version", VERSIONED)
def test_without_the_extra_sentencepiece_is_read_as_plain(tmp_path, version, caplog, monkeypatch):
    folder = mistral_folder(tmp_path, version)
    hide_mistral_common(monkeypatch)
    with caplog.at_level(logging.WARNING):
        tokenizer = load_tokenizer(folder)
    assert "pip install 'jaxinfer[mistral]'" in caplog.text
    assert (kind(tokenizer), tokenizer.can_chat) == ("SentencePieceTokenizer", False)
    assert tokenizer.encode("Hello")[0] == tokenizer.bos_token_id


def test_a_folder_without_any_says_what_was_looked_for(tmp_path):
    with pytest.raises(ValueError, match=r"tokenizer\.json, tekken\.json, tokenizer\.model\.v1"):
        load_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="no tokenizer at"):
        load_tokenizer(tmp_path / "nowhere")


HUGE = 10**18
CONFIG = small_tekken()["config"]
VOCAB = small_tekken()["vocab"]
SPECIAL = [dict(token) for token in Tekkenizer.DEPRECATED_SPECIAL_TOKENS]


@pytest.mark.parametrize(
    "parts",
    [
        {"config": None},
        {"config": []},
        *(
            {"config": {**CONFIG, key: value}}
            for key in ("default_vocab_size", "default_num_special_tokens")
            for value in (None, "20", 20.0, True, -1, 0, HUGE, [])
        ),
        {"config": {**CONFIG, "default_vocab_size": HUGE, "default_num_special_tokens": HUGE}},
        *({"config": {**CONFIG, "version": version}} for version in (None, 3, "v99", "v11", [])),
        *({"config": {**CONFIG, "pattern": pattern}} for pattern in (None, 3, "(", "(?<x")),
        *({"vocab": vocab} for vocab in (None, [], {}, 3, VOCAB[:-1], VOCAB[1:], [*VOCAB[:-1], None])),
        {"vocab": [*VOCAB[:-1], {**VOCAB[-1], "rank": HUGE}]},
        {"vocab": [*VOCAB[:-1], {**VOCAB[-1], "token_bytes": "A"}]},
        {"vocab": [*VOCAB[:-1], {**VOCAB[-1], "token_bytes": VOCAB[0]["token_bytes"]}]},
        {"vocab": [{**VOCAB[0], "token_bytes": VOCAB[1]["token_bytes"]}, *VOCAB[1:]]},
        {"special_tokens": 3},
        {"special_tokens": [None]},
        {"special_tokens": SPECIAL[1:]},
        {"special_tokens": SPECIAL[::-1]},
        {"special_tokens": [*SPECIAL, *SPECIAL]},
        {"special_tokens": [*SPECIAL[:-1], {**SPECIAL[-1], "rank": HUGE}]},
        {"special_tokens": [*SPECIAL[:-1], {**SPECIAL[-1], "token_str": 3}]},
        {"special_tokens": [*SPECIAL[:-1], {**SPECIAL[-1], "token_str": "<s>"}]},
        {"special_tokens": [SPECIAL[0], {**SPECIAL[1], "token_str": "<S>"}, *SPECIAL[2:]]},
        {"image": 3},
        {"audio": {}},
    ],
    ids=lambda parts: json.dumps(parts)[:60],
)
def test_a_hostile_tekken_is_named(tmp_path, parts):
    with pytest.raises(ValueError, match=r"tekken\.json"):
        load_tokenizer(write_tekken(tmp_path, small_tekken() | parts))


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "3", "{}", "[" * 100_000, '{"config": ' * 100_000, "\ufeff{}", "9" * 5_000]
)
def test_what_is_no_tekken_is_named(tmp_path, text):
    (tmp_path / "tekken.json").write_text(text)
    with pytest.raises(ValueError, match=r"tekken\.json"):
        load_tokenizer(tmp_path)


def test_a_small_tekken_is_read_whole(tmp_path):
    """What the tests above break is not broken itself, with the special tokens in the file or without."""
    for parts in ({}, {"special_tokens": None}, {"special_tokens": SPECIAL}):
        assert load_tokenizer(write_tekken(tmp_path, small_tekken() | parts)).encode_chat(USER).token_ids[0] == 1
