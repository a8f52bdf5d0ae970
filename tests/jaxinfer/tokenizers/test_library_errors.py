"""The library fails in classes of its own, some not even an ``Exception``: each must come out as a ``ValueError``."""

import json

import pytest

from jaxinfer.tokenizers import load_tokenizer
from jaxinfer.tokenizers.library_errors import library_errors
from tests.vocabularies import write_byte_level_json

UNDEFINED = [{"SpecialToken": {"id": "[X]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
# A regex that tries every way to cut a run of "a", and an end that none of them reaches.
BACKTRACKING = {"type": "Split", "pattern": {"Regex": "(a|a|aa)+$"}, "behavior": "Isolated", "invert": False}
MANY_A = "a" * 60 + "b"
EMPTY_PATTERN = {"type": "Replace", "pattern": {"String": ""}, "content": "x"}
UNDEFINED_TOKEN = {"type": "TemplateProcessing", "single": UNDEFINED, "pair": [], "special_tokens": {}}


def write_json(folder, **parts):
    """The byte-level vocabulary, parts of its ``tokenizer.json`` replaced; BOS is named, so loading encodes nothing."""
    path = write_byte_level_json(folder, bos_token="<s>") / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | parts))
    return folder


def one_letter(kind, **more):
    """A model of the vocabulary that knows "a" and has no token for what it does not know."""
    return {"type": kind, "vocab": {"a": 0, "<s>": 1}} | more


@pytest.mark.parametrize(
    ("parts", "text", "words"),
    [
        ({"model": one_letter("BPE", merges=[], unk_token="<unk>")}, "b", "<unk>"),
        ({"model": one_letter("WordLevel", unk_token="nope")}, "b", "WordLevel"),
        (
            {
                "model": one_letter(
                    "WordPiece", unk_token="[U]", continuing_subword_prefix="##", max_input_chars_per_word=9
                )
            },
            "b",
            "WordPiece",
        ),
        ({"model": {"type": "Unigram", "unk_id": None, "vocab": [["a", 0.0], ["<s>", 0.0]]}}, "b", "unk_id"),
        ({"pre_tokenizer": BACKTRACKING}, MANY_A, "retry-limit"),
        ({"post_processor": UNDEFINED_TOKEN}, "b", "key"),
        ({"normalizer": EMPTY_PATTERN}, "b", "index out of bounds"),
    ],
    ids=["BPE", "WordLevel", "WordPiece", "Unigram", "regex", "post-processor", "normalizer"],
)
def test_what_the_library_cannot_encode_is_a_value_error(tmp_path, parts, text, words):
    tokenizer = load_tokenizer(write_json(tmp_path, added_tokens=[], **parts))
    for _ in range(2):  # a panic must not leave the library locked
        with pytest.raises(ValueError, match=f"cannot encode this text: .*{words}"):
            tokenizer.encode(text)


@pytest.mark.parametrize("charsmap", ["AAAA", "BAAAAP////8="])
def test_a_panic_at_loading_names_the_file(tmp_path, charsmap):
    folder = write_json(tmp_path, normalizer={"type": "Precompiled", "precompiled_charsmap": charsmap})
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot be read as a tokenizer: .+") as caught:
        load_tokenizer(folder)
    assert str(tmp_path) in str(caught.value)


def test_a_panic_while_bos_is_looked_for_names_the_file(tmp_path):
    folder = write_json(tmp_path, post_processor=UNDEFINED_TOKEN)
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot encode"):
        load_tokenizer(folder)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_meant_for_the_program_passes(kind):
    with pytest.raises(kind), library_errors("never said"):
        raise kind
