"""Files whose steps could make a text so long that no memory holds it are refused before the library sees them."""

import base64
import json

import pytest

from jaxinfer.tokenizers import load_tokenizer
from jaxinfer.tokenizers.growth import MAX_GROWTH, check_growth
from tests.vocabularies import write_byte_level_json

SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
BOS = {"SpecialToken": {"id": "<s>", "type_id": 0}}


def replace(content, pattern=None):
    return {"type": "Replace", "pattern": pattern or {"String": "z"}, "content": content}


def prepend(content):
    return {"type": "Prepend", "prepend": content}


def charsmap(text, table=bytes(16)):
    data = len(table).to_bytes(4, "little") + table + text.encode() + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def template(single, ids):
    special = {"<s>": {"id": "<s>", "ids": ids, "tokens": ["<s>"] * len(ids)}}
    return {"type": "TemplateProcessing", "single": single, "pair": [TEXT], "special_tokens": special}


def sequence(key, steps):
    return {"type": "Sequence", key: steps}


def write(folder, parts):
    """A small vocabulary with ``parts`` of its file exchanged."""
    path = write_byte_level_json(folder) / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | parts))
    return folder


REFUSED = {
    "a long content": {"normalizer": replace("b" * 1000)},
    "several that multiply": {"normalizer": sequence("normalizers", [replace("bb")] * 8)},
    "nested": {"normalizer": sequence("normalizers", [sequence("normalizers", [replace("bbb")] * 2)] * 3)},
    "one letter between all": {"normalizer": sequence("normalizers", [replace("b", {"Regex": "(?=z)"})] * 8)},
    "at an empty text": {"normalizer": sequence("normalizers", [replace("b", {"String": ""})] * 8)},
    "a long prefix": {"normalizer": prepend("b" * 1000)},
    "many prefixes": {"normalizer": sequence("normalizers", [prepend("b")] * 8)},
    "a step known by its key": {"normalizer": {"prepend": "b" * 1000}},
    "a table": {"normalizer": charsmap("b" * 1000)},
    "bytes of bytes": {"pre_tokenizer": sequence("pretokenizers", [BYTES] * 8)},
    "two parts": {"normalizer": replace("b" * 100), "pre_tokenizer": BYTES},
    "the text again and again": {"post_processor": template([TEXT] * 200, [0])},
    "a special token of many ids": {"post_processor": template([BOS, TEXT], [0] * 1000)},
}


@pytest.mark.parametrize("parts", REFUSED.values(), ids=REFUSED)
def test_growth_is_refused(tmp_path, parts):
    """Reading a file encodes the letter "a", which none of these steps repeats: were they taken, all would be well."""
    words = r"tokenizer\.json cannot be read as a tokenizer: .* could make a text more than 128 times as long"
    with pytest.raises(ValueError, match=words):
        load_tokenizer(write(tmp_path, parts))


TAKEN = {
    "nothing": {},
    "spaces": {"normalizer": sequence("normalizers", [SPACE] * 50)},
    "a letter less": {"normalizer": replace("b", {"String": "zz"})},
    "all that files have": {
        "normalizer": sequence("normalizers", [{"type": "NFKC"}, prepend("\u2581"), SPACE]),
        "pre_tokenizer": BYTES,
        "post_processor": template([BOS, TEXT], [0]),
    },
}


@pytest.mark.parametrize("parts", TAKEN.values(), ids=TAKEN)
def test_what_files_have_is_taken(tmp_path, parts):
    load_tokenizer(write(tmp_path, parts))


def test_the_most_that_is_allowed():
    check_growth({"normalizer": replace("b" * MAX_GROWTH)})
    with pytest.raises(ValueError, match="normalizer and pre_tokenizer"):
        check_growth({"normalizer": replace("b" * (MAX_GROWTH + 1))})


def test_a_table_is_measured_by_its_texts():
    """NFKC's longest has 18 characters. What finds them may be of any size."""
    check_growth({"normalizer": charsmap("صلى الله عليه وسلم", table=b"\1" * 100_000)})


@pytest.mark.parametrize("data", ["", "AAAA", "\u00e9", "not base64"])
def test_a_wrong_table_is_named(tmp_path, data):
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        load_tokenizer(write(tmp_path, {"normalizer": {"type": "Precompiled", "precompiled_charsmap": data}}))


def test_deep_steps_are_named(tmp_path):
    steps = '{"type": "Sequence", "normalizers": [' * 5_000
    (tmp_path / "tokenizer.json").write_text(f'{{"normalizer": {steps}{"]}" * 5_000}}}')
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)
