"""Masks of forms against their definition: a token may come next if and only if some text of the form begins so.

For a form of few texts that is looked up in the list of them, for all others in what ``regex`` calls a partial match.
"""

import random
import re

import numpy as np
import pytest
import regex

from jaxinfer.structured_outputs.grammar import GrammarMaker, GrammarTemplate
from jaxinfer.structured_outputs.params import StructuredOutputsParams
from jaxinfer.token_masks import Grammar
from jaxinfer.tokenizers import Tokenizer, load_tokenizer
from tests.vocabularies import (
    BYTE_LEVEL_TOKENS,
    smollm2_path,
    write_byte_level_json,
)
from tests.vocabulary_kinds import tokenizer_of_kind

EOS = 2
"""In the two vocabularies with byte tokens ``</s>``."""
NUM_PADDED = 37


@pytest.fixture(scope="module", params=["byte-level json", "json with a gap", "small spm in gguf"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tokenizer_of_kind(request, tmp_path_factory)


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    return load_tokenizer(smollm2_path())


def made(tokenizer: Tokenizer, eos: tuple[int, ...] = (EOS,), size: int | None = None, **form) -> GrammarTemplate:
    maker = GrammarMaker(tokenizer, tokenizer.vocab_size + NUM_PADDED if size is None else size, eos)
    template = maker.make(StructuredOutputsParams(**form))
    assert template is not None
    return template


def fresh(tokenizer: Tokenizer, **form) -> Grammar:
    return made(tokenizer, **form).fresh()


def allowed(grammar: Grammar) -> set[int]:
    bits = np.unpackbits(grammar.allowed().astype("<u4").view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def walk(grammar: Grammar, tokenizer: Tokenizer, text: str) -> None:
    """Take in ``text``, byte by byte."""
    of_byte = {tokenizer.token_bytes(token_id): token_id for token_id in range(tokenizer.vocab_size)}
    for byte in text.encode():
        grammar.accept(of_byte[bytes([byte])])


def check_walks(tokenizer: Tokenizer, can_begin, is_whole, num_walks: int = 6, length: int = 12, **form) -> None:
    """Random walks over allowed tokens; at every step the mask is what the definition says."""
    data = {token_id: tokenizer.token_bytes(token_id) for token_id in range(tokenizer.vocab_size + NUM_PADDED)}
    rng, template = random.Random(0), made(tokenizer, **form)
    for _ in range(num_walks):
        grammar, text = template.fresh(), b""
        for _ in range(length):
            expected = {i for i, more in data.items() if more and i != EOS and can_begin(text + more)}
            assert allowed(grammar) == expected | ({EOS} if is_whole(text) else set()), text
            if not expected:
                break
            token_id = rng.choice(sorted(expected))
            grammar.accept(token_id)
            text += data[token_id]
            assert grammar.is_done == (is_whole(text) and not any(can_begin(text + bytes([b])) for b in range(256)))


CHOICES = [
    "hello",
    "hello world",
    "he",
    " he",
    "  he",
    "é",
    "\u2581",
    "\ufffd",
    "a b",
    'a"b\\',
    "\n\t\x00\x7f",
    "</s>",
    "😀",
]


def test_a_choice_allows_what_begins_one_of_its_texts(tokenizer):
    texts = {text.encode() for text in CHOICES}
    check_walks(tokenizer, lambda t: any(x.startswith(t) for x in texts), lambda t: t in texts, 20, choice=CHOICES)


@pytest.mark.parametrize(
    "pattern", ["h(e|el)*lo?", "[a-e]{2,4} ?(hello)+", "(ab|ba)*", "x?y?(?:zz)*", "[0-9]{2}:[0-9]{2}"]
)
def test_a_regex_allows_what_begins_a_match(tokenizer, pattern):
    compiled = regex.compile(pattern)

    def can_begin(text: bytes) -> bool:
        return text.isascii() and compiled.fullmatch(text.decode(), partial=True) is not None

    def is_whole(text: bytes) -> bool:
        return re.fullmatch(pattern, text.decode()) is not None

    check_walks(tokenizer, can_begin, is_whole, regex=pattern)


def test_bytes_of_a_character_may_come_one_by_one_and_none_that_is_no_character(tokenizer):
    """U+00E9 to U+00EB are C3 A9 to C3 AB."""
    texts = {chr(code).encode() for code in range(0xE9, 0xEC)}
    check_walks(tokenizer, lambda t: any(x.startswith(t) for x in texts), lambda t: t in texts, regex="[é-ë]")


def test_a_grammar_nests(tokenizer):
    grammar = fresh(tokenizer, grammar='start: "a" | "b" start "c"')
    walk(grammar, tokenizer, "bba")
    assert {tokenizer.token_bytes(i) for i in allowed(grammar)} == {b"c"}
    walk(grammar, tokenizer, "c")
    assert not grammar.is_done
    walk(grammar, tokenizer, "c")
    assert grammar.is_done


def test_json_object(tokenizer):
    grammar = fresh(tokenizer, json_object=True)
    assert {tokenizer.token_bytes(i) for i in allowed(grammar)} == {b"{"}
    walk(grammar, tokenizer, '{"a": [1, null], "b":{}')
    assert not grammar.is_done
    walk(grammar, tokenizer, "}")
    assert grammar.is_done


def test_white_space_is_one_space_after_a_comma_or_colon(tokenizer):
    """JSON allows more, with which a small model may go on for ever."""
    grammar = fresh(tokenizer, json={"type": "array", "items": {"const": {"a": 1}}, "minItems": 2})
    walk(grammar, tokenizer, '[{"a": 1}, ')
    assert {tokenizer.token_bytes(i) for i in allowed(grammar)} == {b"{"}


# Ends


def test_all_eos_tokens_end_a_text_and_none_is_part_of_it(tmp_path):
    """``<tool>`` is plain text in this vocabulary, and an EOS of the model."""
    tokenizer = load_tokenizer(write_byte_level_json(tmp_path))
    eos = tuple(map(BYTE_LEVEL_TOKENS.index, ("</s>", "<tool>")))
    assert tokenizer.token_bytes(eos[1]) == b"<tool>"
    grammar = fresh(tokenizer, eos=eos, regex=".{0,6}")
    assert set(eos) <= allowed(grammar)
    grammar = fresh(tokenizer, eos=eos, regex=".{6}")
    assert not set(eos) & allowed(grammar)
    walk(grammar, tokenizer, "<tool>")
    assert allowed(grammar) == set(eos)


def test_special_tokens_are_never_part_of_a_text(tokenizer):
    special = [i for i in range(tokenizer.vocab_size) if tokenizer.token_text(i) in ("<s>", "</s>")]
    assert special
    assert not set(special) & allowed(fresh(tokenizer, regex="(?s:.)+"))
    assert not allowed(fresh(tokenizer, grammar=f'start: <[{special[0]}]> "a"'))


@pytest.mark.parametrize("change", [-3, -1, 0, 1, 31, 32, 33, 500])
def test_the_vocabularies_of_model_and_tokenizer_may_differ_in_size(tokenizer, change):
    size = tokenizer.vocab_size + change
    grammar = fresh(tokenizer, size=size, regex="(?s:.)+")
    assert grammar.allowed().shape == (-(-size // 32),)
    assert max(allowed(grammar)) < min(size, tokenizer.vocab_size)
    with pytest.raises(ValueError, match=f"token {size} cannot"):
        grammar.accept(size)


def test_eos_that_does_not_end_the_sequence_completes_the_form(tokenizer):
    grammar = fresh(tokenizer, regex="a*")
    walk(grammar, tokenizer, "a")
    assert not grammar.is_done
    grammar.accept(EOS)
    assert grammar.is_done


def test_what_may_not_come_is_an_error_and_nothing_is_allowed_after_it(tokenizer):
    grammar = fresh(tokenizer, choice=["aa", "ab"])
    with pytest.raises(ValueError, match=f"token {EOS} cannot come next"):
        grammar.accept(EOS)
    walk(grammar, tokenizer, "a")
    with pytest.raises(ValueError):
        walk(grammar, tokenizer, "c")
    with pytest.raises(ValueError):
        grammar.allowed()


# One form, many sequences


def test_sequences_do_not_meet_and_a_form_is_compiled_once(tokenizer, monkeypatch):
    maker = GrammarMaker(tokenizer, tokenizer.vocab_size, (EOS,))
    template = maker.make(StructuredOutputsParams(choice=["ab", "cd"]))
    first, second = template.fresh(), template.fresh()
    walk(first, tokenizer, "a")
    assert {tokenizer.token_bytes(i) for i in allowed(second)} == {b"a", b"c"}
    walk(second, tokenizer, "cd")
    assert {tokenizer.token_bytes(i) for i in allowed(first)} == {b"b"}
    assert maker.make(StructuredOutputsParams(choice=("ab", "cd"))) is template
    assert {tokenizer.token_bytes(i) for i in allowed(template.fresh())} == {b"a", b"c"}


def test_masks_are_fresh(tokenizer):
    grammar = fresh(tokenizer, regex="ab")
    grammar.allowed()[:] = 0
    assert allowed(grammar)


# A real vocabulary


def test_a_text_may_be_spelled_in_any_tokens(smollm2):
    texts = {b'{"name": "x"}', b'{"name":"x"}'}
    properties = {"name": {"const": "x"}}
    schema = {"type": "object", "properties": properties, "required": ["name"], "additionalProperties": False}
    check_walks(smollm2, lambda t: any(x.startswith(t) for x in texts), lambda t: t in texts, 1, 4, json=schema)
