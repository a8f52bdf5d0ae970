"""Text with Mistral's own tokenizers: ids, decoding and spellings as mistral-common has them."""

import pytest

from jaxinfer.tokenizers import load_tokenizer
from tests.mistral_files import FILES, load_oracles, load_versions, small_tekken, write_tekken

pytest.importorskip("mistral_common")


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    return load_versions(tmp_path_factory)


@pytest.fixture(scope="module")
def oracles():
    return load_oracles()


@pytest.mark.parametrize("version", FILES)
@pytest.mark.parametrize("text", ["Hello  world", " a", "", "</s>[INST]", "👩‍👩‍👧 漢字 e\u0301\x00", "\n\n"])
def test_text_has_the_ids_of_mistral_common(tokenizers, oracles, version, text):
    inner = oracles[version].instruct_tokenizer.tokenizer
    ids = tokenizers[version].encode(text)
    assert ids == inner.encode(text, bos=True, eos=False)
    assert tokenizers[version].decode(ids) == inner.decode(ids) == text


@pytest.mark.parametrize("version", FILES)
def test_tokens_and_their_spellings(tokenizers, oracles, version):
    tokenizer, inner = tokenizers[version], oracles[version].instruct_tokenizer.tokenizer
    assert (tokenizer.vocab_size, tokenizer.can_chat) == (inner.n_words, True)
    for spelling in ("<s>", "</s>", *(["[INST]", "[TOOL_CALLS]"] if version != "v1" else [])):
        token_id = tokenizer.token_id(spelling)
        assert (token_id, tokenizer.token_text(token_id)) == (inner.get_special_token(spelling), spelling)
        assert tokenizer.decode([token_id]) == ""
    assert (tokenizer.token_id("[NOT]"), tokenizer.token_id("")) == (None, None)
    hello = tokenizer.token_id("hello")
    assert tokenizer.token_text(hello) == "hello"
    assert tokenizer.decode([tokenizer.bos_token_id, hello]) == "hello"


def test_text_that_tekken_cannot_cut_is_an_error(tokenizers):
    with pytest.raises(ValueError, match="cannot encode this text"):
        tokenizers["tekken"].encode(" " * 1_000_000)


def test_a_small_tekken(tmp_path):
    """By hand: bytes come after the 20 special tokens, then the three tokens more."""
    tokenizer = load_tokenizer(write_tekken(tmp_path, small_tekken()))
    assert tokenizer.encode("he wé!") == [1, 20 + 256, 20 + 257, 20 + 258, 20 + ord("!")]
    assert [tokenizer.token_text(i) for i in (1, 20 + 0xC3, 276, 277, 279)] == ["<s>", "<0xC3>", "he", " w", ""]
    assert [tokenizer.token_id(text) for text in ("</s>", "he", "hx")] == [2, 276, None]
    assert tokenizer.decode([1, 20 + 0xC3, 2, 20 + 0xA9, 20 + 0xC3, 279]) == "é\ufffd"
