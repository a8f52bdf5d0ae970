"""Files that an interrupted copy left behind, and files of other bytes: each is named, and none is half a tokenizer."""

import json

import pytest

from jaxinfer.tokenizers import load_tokenizer
from tests.mistral_files import packaged_file, small_tekken
from tests.vocabularies import train_sentencepiece, write_byte_level_json

PLACES = 20


@pytest.fixture(scope="module")
def whole_files(tmp_path_factory):
    """Content by name; of Mistral's, where mistral-common is installed."""
    folder = train_sentencepiece(write_byte_level_json(tmp_path_factory.mktemp("whole"), bos_token="<s>"))
    names = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
    return {name: (folder / name).read_bytes() for name in names} | {"tekken.json": json.dumps(small_tekken()).encode()}


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model", "tekken.json"])
def test_a_torn_file_is_named(whole_files, tmp_path, name):
    if name == "tekken.json":
        pytest.importorskip("mistral_common")
    for place in range(PLACES):
        (tmp_path / name).write_bytes(whole_files[name][: len(whole_files[name]) * place // PLACES])
        with pytest.raises(ValueError, match=f"{tmp_path / name}"):
            load_tokenizer(tmp_path)
    (tmp_path / name).write_bytes(whole_files[name])
    load_tokenizer(tmp_path)


def test_a_torn_file_beside_it_is_named(whole_files, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(whole_files["tokenizer.json"])
    whole = whole_files["tokenizer_config.json"]
    for place in range(len(whole)):
        (tmp_path / "tokenizer_config.json").write_bytes(whole[:place])
        with pytest.raises(ValueError, match=r"tokenizer_config\.json"):
            load_tokenizer(tmp_path)


def test_a_torn_file_of_mistrals_is_named(tmp_path):
    whole = packaged_file("v3").read_bytes()
    for place in range(PLACES):
        (tmp_path / "tokenizer.model.v3").write_bytes(whole[: len(whole) * place // PLACES])
        with pytest.raises(ValueError, match=r"tokenizer\.model\.v3"):
            load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.model", "tokenizer.model.v3"])
@pytest.mark.parametrize(("piece", "broken"), [(b"</s>", b"</s\xff"), (b"hell", b"hel\xff")])
def test_a_piece_that_is_not_utf8_names_the_file(whole_files, tmp_path, name, piece, broken):
    """Found at once, and not when the model first samples it."""
    whole = whole_files["tokenizer.model"]
    assert piece in whole
    (tmp_path / name).write_bytes(whole.replace(piece, broken, 1))
    with pytest.raises(ValueError, match=f"{tmp_path / name}"):
        load_tokenizer(tmp_path)


def test_so_does_the_text_of_the_unknown_piece(whole_files, tmp_path):
    """It is no piece but a setting: ``unk_surface``, field 44 of field 2, which is merged into the model's own."""
    (tmp_path / "tokenizer.model").write_bytes(whole_files["tokenizer.model"] + b"\x12\x04\xe2\x02\x01\x80")
    with pytest.raises(ValueError, match=r"tokenizer\.model"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model", "tokenizer.model.v3", "tekken.json"])
@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 4096, b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5_000, b"\xff\xfe{}"]
)
def test_a_file_of_other_bytes_is_named(tmp_path, name, content):
    if name == "tekken.json":
        pytest.importorskip("mistral_common")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{tmp_path / name}"):
        load_tokenizer(tmp_path)
