"""The kind ``llama`` of a GGUF: by hand, against the library's own model of the same vocabulary, and wrong files.

That it gives llama.cpp's ids is tested in ``test_gguf_vocab.py``.
"""

import math

import gguf
import numpy as np
import pytest
import sentencepiece

from jaxinfer.tokenizers import load_tokenizer
from tests.mistral_files import packaged_file
from tests.reference import load_reference
from tests.vocabularies import SPM_PIECES, train_sentencepiece, write_gguf_spm

BOS, EOS = 1, 2
TEXTS = ["hello head", "  two  spaces ", "", "é🎉 \x00", "<s>", "a\n\nb", "\u2581hell", "old ball." * 20]


def ids_of(*pieces):
    spellings = [piece for piece, _, _ in SPM_PIECES]
    return [spellings.index(piece) for piece in pieces]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return load_tokenizer(write_gguf_spm(tmp_path_factory.mktemp("spm") / "m.gguf"))


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("hello", ["\u2581hello"]),
        (" hell", ["\u2581", "\u2581he", "ll"]),
        ("lo", ["\u2581", "l", "o"]),  # the token "lo" is unused
        ("e<tool>", ["\u2581", "e", "<tool>"]),
        ("a   b", ["\u2581", "a", "   ", "b"]),  # the file has this token's spaces as the text has them
        ("z\n", ["\u2581", "<0x7A>", "<0x0A>"]),
        ("</s>", ["\u2581", "<0x3C>", "<0x2F>", "<0x73>", "<0x3E>"]),  # a text's letters, no end of it
        ("", []),
    ],
)
def test_by_hand(tokenizer, text, pieces):
    assert tokenizer.encode(text) == [BOS, *ids_of(*pieces)]
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_chat_text_brings_its_control_tokens(tokenizer):
    """What follows one is a text of its own, which begins with one space, the vocabulary's or the text's."""
    ids = tokenizer.encode("<s>hello</s> hello", add_special_tokens=False)
    assert ids == ids_of("<s>", "\u2581hello", "</s>", "\u2581hello")


def test_chat_text_of_a_vocabulary_that_puts_no_space(tmp_path):
    tokenizer = load_tokenizer(write_gguf_spm(tmp_path / "m.gguf", add_space_prefix=False))
    ids = tokenizer.encode("<s>hello</s> hello", add_special_tokens=False)
    assert ids == ids_of("<s>", "he", "llo", "</s>", "\u2581hello")


def test_what_the_keys_say(tmp_path):
    keys = {"bos_token_id": EOS, "eos_token_id": BOS, "add_bos_token": False, "add_space_prefix": False}
    tokenizer = load_tokenizer(write_gguf_spm(tmp_path / "m.gguf", **keys))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (EOS, BOS)
    assert tokenizer.encode("hello") == ids_of("he", "llo")
    with_bos = load_tokenizer(write_gguf_spm(tmp_path / "b.gguf", **keys | {"add_bos_token": True}))
    assert with_bos.encode("hello") == [EOS, *ids_of("he", "llo")]


def test_without_keys_the_ids_are_those_of_llama_cpp(tokenizer):
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.can_chat) == (BOS, EOS, False)
    assert tokenizer.vocab_size == len(SPM_PIECES)


def test_nothing_ends_a_text_that_is_to_go_on(tmp_path, tokenizer):
    ends = load_tokenizer(write_gguf_spm(tmp_path / "m.gguf", add_eos_token=True))
    assert ends.encode("hello") == tokenizer.encode("hello")


@pytest.mark.parametrize("user_defined", [{"\u2581", "\u2581\u2581"}, set()], ids=["trained", "stories260K"])
def test_the_ids_are_those_of_the_model_that_the_lists_came_from(tmp_path, shared_data, user_defined):
    """Of one that is made here and of a published one that was made as Llama's."""
    folder = train_sentencepiece(tmp_path, like_llama=True) if user_defined else shared_data / "stories260K-hf"
    library = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    tokenizer = load_tokenizer(convert(tmp_path / "m.gguf", library, user_defined))
    for text in [*TEXTS, *random_texts()]:
        assert tokenizer.encode(text) == [BOS, *library.encode(text)]
        assert tokenizer.decode(library.encode(text)) == library.decode(library.encode(text))


def convert(path, library, user_defined=(), **more):
    """A SentencePiece model written as a converter writes it."""
    pieces = [
        (library.id_to_piece(i), library.get_score(i), type_of(library, i, user_defined))
        for i in range(library.vocab_size())
    ]
    return write_gguf_spm(path, pieces, **more)


def random_texts():
    arrays = load_reference("smollm2_tokenizer").arrays
    return [text.tobytes().decode() for text in np.split(arrays["texts"], arrays["text_lens"].cumsum()[:-1])]


def type_of(library, token_id, user_defined):
    if library.is_unknown(token_id):
        return gguf.TokenType.UNKNOWN
    if library.is_control(token_id):
        return gguf.TokenType.CONTROL
    if library.is_byte(token_id):
        return gguf.TokenType.BYTE
    is_user_defined = library.id_to_piece(token_id) in user_defined  # of which the library does not say which they are
    return gguf.TokenType.USER_DEFINED if is_user_defined else gguf.TokenType.NORMAL


FIRST_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message.role == 'user' %}[INST] {{ message.content }} [/INST]"
    "{% else %} {{ message.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
THIRD_TEMPLATE = FIRST_TEMPLATE.replace(" [/INST]", "[/INST]")


@pytest.mark.parametrize(
    ("version", "templates", "keys"),
    [
        ("v1", [FIRST_TEMPLATE, FIRST_TEMPLATE.replace("bos_token }}", "bos_token }} ")], {}),
        ("v2", [THIRD_TEMPLATE], {}),
        ("v3", [THIRD_TEMPLATE], {}),
        ("v3", [THIRD_TEMPLATE], {"add_space_prefix": True}),
    ],
)
def test_conversations_have_the_ids_of_mistrals_library(tmp_path, version, templates, keys):
    """The templates are those of converted files, as far as these messages need them.

    Published files lack the key: a converter writes it only where tokenizer_config.json has add_prefix_space.
    """
    mistral = pytest.importorskip("mistral_common.tokens.tokenizers.mistral").MistralTokenizer
    request = pytest.importorskip("mistral_common.protocol.instruct.request").ChatCompletionRequest
    path = packaged_file(version)
    library = sentencepiece.SentencePieceProcessor(model_file=str(path))
    (tmp_path / "tokenizer.model").symlink_to(path)
    in_folder, in_gguf = map(load_tokenizer, (tmp_path, convert(tmp_path / "m.gguf", library, **keys)))
    messages = [
        {"role": "user", "content": "What is 2 + 2?"},
        {"role": "assistant", "content": "It is 4."},
        {"role": "user", "content": "Danke, und\nin Worten?"},
    ]
    expected = getattr(mistral, version)().encode_chat_completion(request(messages=messages)).tokens
    for template in templates:
        in_folder.chat_template = in_gguf.chat_template = template
        assert in_folder.encode_chat(messages).token_ids == in_gguf.encode_chat(messages).token_ids == expected
        in_gguf.chat_template = template.removeprefix("{{ bos_token }}")  # as some exporters leave it
        assert in_gguf.encode_chat(messages).token_ids == expected


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda pieces: [*pieces, ("he", 0.0, 1)], "tokens has 280 entries of which only 279 differ"),
        (lambda pieces: [*pieces, ("", 0.0, 1)], "SentencePiece"),
        (lambda pieces: [*pieces, ("new", 0.0, 9)], "token_type has 9 for token 279; types are 1 to 6"),
        (lambda pieces: [*pieces, ("new", math.nan, 1)], "scores has nan for token 279; it must be a finite float32"),
        (lambda pieces: [*pieces, ("new", -math.inf, 1)], "scores has -inf for token 279"),
        (lambda pieces: [piece for piece in pieces if piece[2] not in (2, 6)], "SentencePiece.*unk"),
        (lambda pieces: [*pieces, ("<unk2>", 0.0, 2)], "SentencePiece.*unk"),
        (lambda pieces: [*pieces[:5], *pieces[6:]], "SentencePiece.*256 byte"),
    ],
    ids=["twice", "empty", "type", "nan", "inf", "no unknown", "two unknown", "a byte is missing"],
)
def test_a_wrong_vocabulary_is_named(tmp_path, break_it, words):
    path = write_gguf_spm(tmp_path / "wrong.gguf", break_it(SPM_PIECES))
    with pytest.raises(ValueError, match=rf"wrong\.gguf.*{words}"):
        load_tokenizer(path)


@pytest.mark.parametrize("key", ["tokens", "scores", "token_type"])
def test_a_missing_list_is_named(tmp_path, key):
    path = tmp_path / "m.gguf"
    content = write_gguf_spm(path).read_bytes()
    path.write_bytes(content.replace(f"ggml.{key}".encode(), f"ggml.{key[::-1]}".encode()))
    with pytest.raises(ValueError, match=rf"m\.gguf has no tokenizer\.ggml\.{key}"):
        load_tokenizer(path)


def test_scores_that_only_a_double_holds_are_named(tmp_path):
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "a"])
    writer.add_token_types([gguf.TokenType.UNKNOWN, gguf.TokenType.NORMAL])
    writer.add_key_value("tokenizer.ggml.scores", [0.0, 1e300], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.FLOAT64)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ValueError, match=r"m\.gguf: tokenizer\.ggml\.scores has 1e\+300 for token 1"):
        load_tokenizer(path)
