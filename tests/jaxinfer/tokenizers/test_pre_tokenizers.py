"""How texts are cut before merging: by hand, and tekken against the library of its makers."""

import base64
import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from tokenizers import pre_tokenizers

from jaxinfer.tokenizers import load_tokenizer
from jaxinfer.tokenizers.pre_tokenizers import PRE_TOKENIZERS
from tests.reference import load_reference
from tests.vocabularies import BYTE_LEVEL_MERGES as MERGES
from tests.vocabularies import BYTE_LEVEL_TOKENS, write_gguf

CASES = {
    "gpt-2": ("I'll pay 12345 €,\n\n  now", "I|'ll| pay| 12345| €,|\n\n | now"),
    "smollm": ("I'll pay 12345 €,\n\n  now", "I|'ll| pay| |1|2|3|4|5| €,|\n\n | now"),
    "qwen2": ("I'LL pay 12345 €,\n\n  now(x)", "I|'LL| pay| |1|2|3|4|5| €,\n\n| | now|(x|)"),
    "llama-bpe": ("I'LL pay 12345 €,\n\n  now(x)", "I|'LL| pay| |123|45| €,\n\n| | now|(x|)"),
    # No contractions; a capital begins a word; a slash goes with the sign before it.
    "tekken": ("I'LL pay 12 camelCase a./\n", "I|'LL| pay| |1|2| camel|Case| a|./\n"),
    "default": ("I'll pay 12345 €, now", "I|'|ll| pay| |123|45| €|,| now"),
}
SAME = {"gpt2": "gpt-2", "llama3": "llama-bpe", "llama-v3": "llama-bpe"}


@pytest.mark.parametrize("name", [*CASES, *SAME])
def test_cuts_by_hand(name):
    text, pieces = CASES[SAME.get(name, name)]
    alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelled = [alphabet.pre_tokenize_str(piece)[0][0] for piece in pieces.split("|")]
    assert [piece for piece, _ in PRE_TOKENIZERS[name].split().pre_tokenize_str(text)] == spelled


def test_every_name_has_a_case():
    assert {*CASES, *SAME} == {*PRE_TOKENIZERS}


def test_only_qwen_composes_characters(tmp_path):
    """U+0065 U+0301 is one character to Qwen's tokenizer.json, and two to the others'."""
    composed, apart = "\u00e9", "e\u0301"
    for name in PRE_TOKENIZERS:
        tokenizer = load_tokenizer(write_gguf(tmp_path / f"{name}.gguf", pre=name))
        assert (tokenizer.encode(composed) == tokenizer.encode(apart)) == (name == "qwen2")


def test_a_word_that_is_a_token_is_not_merged(tmp_path, monkeypatch):
    """Here no merge leads to the token "hello"; Llama 3 and tekken take it nevertheless."""
    monkeypatch.setattr("tests.vocabularies.BYTE_LEVEL_MERGES", [pair for pair in MERGES if pair != ("hell", "o")])
    hello = [BYTE_LEVEL_TOKENS.index("hello")]
    for name in PRE_TOKENIZERS:
        path = write_gguf(tmp_path / f"{name}.gguf", pre=name)
        whole = load_tokenizer(path).encode("hello") == hello
        assert whole == (name in ("llama-bpe", "llama-v3", "llama3", "tekken"))


def test_bos_comes_first_where_the_file_does_not_say(tmp_path):
    letter = [BYTE_LEVEL_TOKENS.index("c")]
    for name in PRE_TOKENIZERS:
        path = tmp_path / f"{name}.gguf"
        wanted = name in ("llama-bpe", "llama-v3", "llama3", "tekken")
        assert load_tokenizer(write_gguf(path, pre=name, bos_token_id=0)).encode("c") == [0] * wanted + letter
        said = load_tokenizer(write_gguf(path, pre=name, bos_token_id=0, add_bos_token=False))
        assert said.encode("c") == letter


NUM_TOKENS = 20_000


@pytest.fixture(scope="module")
def tekken():
    """Mistral's library with the most frequent tokens of its own vocabulary; how its first ids are spelled, and the
    bytes of the others."""
    library = pytest.importorskip("mistral_common.tokens.tokenizers.tekken")
    path = Path(library.__file__).parents[2] / "data" / "tekken_240718.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    special = [*library.Tekkenizer.DEPRECATED_SPECIAL_TOKENS]
    tekken = library.Tekkenizer(
        content["vocab"],
        special,
        content["config"]["pattern"],
        vocab_size=NUM_TOKENS + len(special),
        num_special_tokens=len(special),
        version=library.TokenizerVersion.v3,
    )
    data = [base64.b64decode(token["token_bytes"]) for token in content["vocab"][:NUM_TOKENS]]
    return tekken, [token["token_str"] for token in special], data


def test_tekken_gives_the_ids_of_its_makers(tmp_path, tekken, reference_texts):
    library, special, data = tekken
    tokenizer = load_tokenizer(write_tekken(tmp_path / "m.gguf", special, data))
    texts = [text for text in reference_texts if "<" not in text]  # which Mistral's library never reads as a token
    assert len(texts) > 500
    assert [text for text in texts if tokenizer.encode(text) != library.encode(text, bos=True, eos=False)] == []


LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
"""``pat_str`` in https://github.com/meta-llama/llama-models/blob/main/models/llama3/tokenizer.py."""


def test_llama3_gives_the_ids_of_the_library_of_its_makers(tmp_path, tekken, reference_texts):
    """With Mistral's tokens: it is the cutting that is Meta's own."""
    _, special, data = tekken
    ranks = {token: rank for rank, token in enumerate(data)}
    library = pytest.importorskip("tiktoken").Encoding(
        "llama3", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens={}
    )
    tokenizer = load_tokenizer(write_tekken(tmp_path / "m.gguf", special, data, pre="llama-bpe"))
    first, bos = len(special), special.index("<s>")
    texts = [text for text in reference_texts if "<" not in text]
    wrong = [
        text for text in texts if tokenizer.encode(text) != [bos, *(first + i for i in library.encode_ordinary(text))]
    ]
    assert wrong == []


@pytest.fixture
def reference_texts(shared_data):
    arrays = load_reference("smollm2_tokenizer").arrays
    random_texts = np.split(arrays["texts"], arrays["text_lens"].cumsum()[:-1])
    prose = (shared_data / "wikitext2_test.txt").read_text(encoding="utf-8").splitlines()[:200]
    return [*(text.tobytes().decode() for text in random_texts), *prose]


def write_tekken(path, special, data, pre="tekken"):
    """As a converter writes it. A merge for each way to make a token of two others, the rarest of its parts first."""
    ranks = {token: rank for rank, token in enumerate(data)}
    merges = []
    for token in data[256:]:
        cuts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        merges += sorted(cuts, key=lambda cut: (ranks[cut[0]], ranks[cut[1]]))
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([*special, *map(spelled, data)])
    writer.add_token_types([gguf.TokenType.CONTROL] * len(special) + [gguf.TokenType.NORMAL] * len(data))
    writer.add_token_merges([f"{spelled(left)} {spelled(right)}" for left, right in merges])
    writer.add_bos_token_id(special.index("<s>"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def spelled(data):
    """GPT-2's letters for bytes: itself where it is printable, else U+0100 and on."""
    others = [byte for byte in range(256) if not (0x21 <= byte <= 0x7E or (0xA1 <= byte <= 0xFF and byte != 0xAD))]
    return "".join(chr(0x100 + others.index(byte)) if byte in others else chr(byte) for byte in data)
