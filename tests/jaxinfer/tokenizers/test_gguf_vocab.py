"""The vocabulary inside a GGUF: against llama.cpp's ids, against transformers', and against files that are wrong."""

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from jaxinfer.tokenizers import load_tokenizer
from tests.reference import load_reference
from tests.vocabularies import BYTE_LEVEL_TOKENS, SPM_PIECES, smollm2_path, write_gguf, write_gguf_spm

SEPARATOR = "\n__ggml_vocab_test__\n"


@pytest.fixture(scope="module")
def smollm2():
    return load_tokenizer(smollm2_path())


@pytest.fixture(scope="module")
def reference():
    """Texts and their ids, by transformers."""
    arrays = load_reference("smollm2_tokenizer").arrays
    texts = np.split(arrays["texts"], arrays["text_lens"].cumsum()[:-1])
    ids = np.split(arrays["ids"], arrays["id_lens"].cumsum()[:-1])
    return [(some.tobytes().decode(), some_ids.tolist()) for some, some_ids in zip(texts, ids, strict=True)]


@pytest.mark.parametrize("name", ["llama-spm", "qwen2"])
def test_both_kinds_give_the_ids_of_llama_cpp(shared_data, name):
    """The 47th text is empty. llama.cpp wrote its ids without BOS, which the first file asks for."""
    path = shared_data / "tokenizers" / f"ggml-vocab-{name}.gguf"
    texts = path.with_suffix(".gguf.inp").read_bytes().decode().split(SEPARATOR)
    lines = path.with_suffix(".gguf.out").read_text().split("\n")
    assert len(texts) == len(lines) == 47
    tokenizer = load_tokenizer(path)
    first = [1] if name == "llama-spm" else []
    found = [tokenizer.encode(text) for text in texts]
    assert found == [[*first, *map(int, line.split())] for line in lines]
    assert [tokenizer.decode(ids) for ids in found] == texts


def test_smollm2_gives_the_ids_of_transformers(smollm2, reference):
    assert len(reference) == 1000
    assert [text for text, ids in reference if smollm2.encode(text) != ids] == []


def test_smollm2_splits_digits_before_spaces(smollm2, reference):
    """The negative control of the fixture: GPT-2's cutting alone must fail it."""
    plain = load_tokenizer(smollm2_path())
    plain._inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert any(plain.encode(text) != ids for text, ids in reference)


def test_smollm2_special_tokens(smollm2):
    assert smollm2.vocab_size == 49152
    assert smollm2.eos_token_id == 2
    assert smollm2.token_text(2) == "<|im_end|>"
    assert smollm2.encode("<|im_start|>", add_special_tokens=True) == [1]  # its file says: no BOS of its own
    assert smollm2.decode([1, *smollm2.encode("hi"), 2]) == "hi"


def test_gpt2_kind_by_hand(tmp_path):
    tokenizer = load_tokenizer(write_gguf(tmp_path / "m.gguf", eos_token_id=1))
    hello, space_w = BYTE_LEVEL_TOKENS.index("hello"), BYTE_LEVEL_TOKENS.index("Ġw")
    assert tokenizer.encode("hello w</s><tool>") == [hello, space_w, 1, 2]
    assert tokenizer.decode([hello, space_w, 1, 2]) == "hello w<tool>"  # control tokens are no text, user-defined are
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.chat_template) == (None, 1, None)


def test_bos_comes_once(tmp_path):
    tokenizer = load_tokenizer(write_gguf(tmp_path / "m.gguf", bos_token_id=0, add_bos_token=True))
    hello = BYTE_LEVEL_TOKENS.index("hello")
    assert tokenizer.encode("hello") == [0, hello]
    assert tokenizer.encode("<s>hello") == [0, hello]
    assert tokenizer.encode("<s>hello", add_special_tokens=False) == [0, hello]
    assert tokenizer.encode("hello", add_special_tokens=False) == [hello]
    assert tokenizer.encode("") == [0]


def test_bos_that_the_text_spells_stays(tmp_path, smollm2):
    assert smollm2.encode("<|im_start|><|im_start|>hi") == [1, 1, *smollm2.encode("hi")]  # its file adds none
    tokenizer = load_tokenizer(write_gguf(tmp_path / "m.gguf", bos_token_id=0, add_bos_token=True))
    assert tokenizer.encode("<s><s>hello") == [0, 0, BYTE_LEVEL_TOKENS.index("hello")]


def test_the_end_of_a_turn_is_not_eos(tmp_path):
    assert load_tokenizer(write_gguf(tmp_path / "a.gguf", eot_token_id=2, eos_token_id=1)).eos_token_id == 1
    assert load_tokenizer(write_gguf(tmp_path / "b.gguf", eot_token_id=2)).eos_token_id is None


KINDS = pytest.mark.parametrize("write", [write_gguf, write_gguf_spm], ids=["gpt2", "llama"])
BOS_OF = {write_gguf: 0, write_gguf_spm: 1}
SAYS = "{{ bos_token }}"


@KINDS
@pytest.mark.parametrize(
    ("template", "adds", "begins"),
    [
        (SAYS, True, 1),
        ("", True, 1),
        (SAYS + SAYS, True, 2),
        (SAYS, False, 1),
        ("", False, 0),
    ],
    ids=["spelled", "left out", "spelled twice", "spelled and not added", "left out and not added"],
)
@pytest.mark.parametrize("content", ["hello", " hello", ""])
def test_bos_of_a_conversation(tmp_path, write, template, adds, begins, content):
    """Exporters leave BOS to the program that reads the file, where it says add_bos_token.

    What comes after it is as if the template had spelled it.
    """
    tokenizer = load_tokenizer(write(tmp_path / "m.gguf", bos_token_id=BOS_OF[write], add_bos_token=adds))
    tokenizer.chat_template = template + "{{ messages[0].content }}"
    chat = tokenizer.encode_chat([{"role": "user", "content": content}])
    assert chat.text == "<s>" * begins + content
    assert chat.token_ids == tokenizer.encode("<s>" * begins + content, add_special_tokens=False)
    assert chat.token_ids.count(BOS_OF[write]) == begins


@KINDS
def test_a_bos_that_no_text_spells_comes_first_too(tmp_path, write):
    """The file calls an ordinary token BOS, which in a text is a letter of a word."""
    tokens = BYTE_LEVEL_TOKENS if write is write_gguf else [piece for piece, _, _ in SPM_PIECES]
    bos = tokens.index("h")
    tokenizer = load_tokenizer(write(tmp_path / "m.gguf", bos_token_id=bos, add_bos_token=True))
    tokenizer.chat_template = "{{ messages[0].content }}"
    ids = tokenizer.encode_chat([{"role": "user", "content": "ello"}]).token_ids
    assert ids == [bos, *tokenizer.encode("ello", add_special_tokens=False)]


def test_without_the_key_bos_is_as_the_kind_has_it(tmp_path):
    """See ``llama_vocab::impl::load``: a SentencePiece vocabulary adds it, of the others those that are named so."""
    for path, begins in {
        write_gguf_spm(tmp_path / "spm.gguf"): [1],
        write_gguf(tmp_path / "llama3.gguf", pre="llama-bpe", bos_token_id=0): [0],
        write_gguf(tmp_path / "qwen2.gguf", pre="qwen2", bos_token_id=0): [],
    }.items():
        tokenizer = load_tokenizer(path)
        tokenizer.chat_template = "{{ messages[0].content }}"
        ids = tokenizer.encode_chat([{"role": "user", "content": "hello"}]).token_ids
        assert ids == tokenizer.encode("hello") == [*begins, *tokenizer.encode("hello", add_special_tokens=False)]


@pytest.mark.parametrize("pre", [None, ""])
def test_without_a_pre_tokenizer_it_is_the_default_and_a_warning(tmp_path, caplog, pre):
    """As in llama.cpp. Its default cuts punctuation off by itself: no merge of "." and what follows."""
    path = tmp_path / "early.gguf"
    write_gguf(path, pre="default")
    named = load_tokenizer(path)
    assert caplog.records == []
    if pre is None:
        path.write_bytes(path.read_bytes().replace(b"tokenizer.ggml.pre", b"tokenizer.ggml.erp"))
    else:
        write_gguf(path, pre="gpt-2")
        content = path.read_bytes()
        assert content.count(b"\x05\x00\x00\x00\x00\x00\x00\x00gpt-2") == 1
        path.write_bytes(content.replace(b"\x05\x00\x00\x00\x00\x00\x00\x00gpt-2", b"\x00" * 8))
    early = load_tokenizer(path)
    assert [str(path) in record.getMessage() for record in caplog.records] == [True]
    assert early._inner.pre_tokenizer.__getstate__() == named._inner.pre_tokenizer.__getstate__()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"kind": "bert"}, ["'bert'", "'gpt2', 'llama'"]),
        ({"pre": "falcon"}, ["'falcon'", "gpt-2, gpt2, llama-bpe, llama-v3, llama3, qwen2, smollm, tekken"]),
        ({"eos_token_id": 100_000}, ["eos_token_id", "100000"]),
        ({"eos_token_id": "two"}, ["eos_token_id", "'two'", "int"]),
    ],
)
def test_a_wrong_key_is_named(tmp_path, keys, words):
    path = write_gguf(tmp_path / "wrong.gguf", **keys)
    with pytest.raises(ValueError) as caught:
        load_tokenizer(path)
    assert all(word in str(caught.value) for word in ["wrong.gguf", *words])


def test_a_token_that_is_not_utf8_is_named(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(write_gguf(path).read_bytes().replace(b"hello", b"hel\xffo"))
    with pytest.raises(ValueError, match=r"m\.gguf: tokenizer\.ggml\.tokens cannot be read: item \d+ is not UTF-8"):
        load_tokenizer(path)


def test_a_list_of_another_type_is_named(tmp_path):
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_array("tokenizer.ggml.tokens", [1, 2])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ValueError, match=r"m\.gguf: the items of tokenizer\.ggml\.tokens must be of type str"):
        load_tokenizer(path)


@KINDS
def test_a_torn_file_is_an_error_wherever_it_tears(tmp_path, write):
    """Here in the file of a vocabulary alone; tests/jaxinfer/test_gguf_header.py tears one of a model."""
    whole = write(tmp_path / "whole.gguf").read_bytes()
    torn = tmp_path / "torn.gguf"
    for twentieth in range(20):
        torn.write_bytes(whole[: len(whole) * twentieth // 20])
        with pytest.raises(ValueError, match=r"torn\.gguf"):
            load_tokenizer(torn)


@KINDS
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes_give_a_tokenizer_or_a_value_error(tmp_path, write, data):
    """A tokenizer of such a file reads and writes text as any other."""
    path = tmp_path / "m.gguf"
    content = bytearray(write(path, bos_token_id=0, add_bos_token=True).read_bytes())
    place = st.integers(0, len(content) - 1)
    for at, value in data.draw(st.lists(st.tuples(place, st.integers(0, 255)), min_size=1, max_size=4)):
        content[at] = value
    path.write_bytes(content)
    try:
        tokenizer = load_tokenizer(path)
    except ValueError:
        return
    ids = tokenizer.encode("hello a   b<tool> z\n\U0001f389")
    stream = tokenizer.text_stream()
    assert "".join(map(stream.push, ids)) + stream.pending() == tokenizer.decode(ids)
