"""Schemas that the library would read as others: refused, and those beside them held, in the bytes that they allow."""

import json
import random
import re

import jsonschema
import pytest

from jaxinfer.structured_outputs.grammar import GrammarMaker
from jaxinfer.structured_outputs.params import StructuredOutputsParams
from jaxinfer.tokenizers import Tokenizer, load_tokenizer
from tests.vocabularies import write_byte_fallback_json

EOS = 2


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(write_byte_fallback_json(tmp_path_factory.mktemp("tokenizer"), decoder="sequence", gap=5))


@pytest.fixture(scope="module")
def maker(tokenizer: Tokenizer) -> GrammarMaker:
    return GrammarMaker(tokenizer, tokenizer.vocab_size, (EOS,))


def allows(maker: GrammarMaker, tokenizer: Tokenizer, schema: object, text: str) -> bool:
    """Whether ``text`` is whole by the masks of its bytes."""
    of_byte = {tokenizer.token_bytes(token_id): token_id for token_id in range(tokenizer.vocab_size)}
    grammar = maker.make(StructuredOutputsParams(json=schema)).fresh()  # type: ignore[arg-type,union-attr]
    for byte in text.encode():
        token_id = of_byte[bytes([byte])]
        if grammar.is_done or not grammar.allowed()[token_id // 32] >> (token_id % 32) & 1:
            return False
        grammar.accept(token_id)
    return grammar.is_done or bool(grammar.allowed()[0] >> EOS & 1)


def refusal(maker: GrammarMaker, schema: object) -> str:
    with pytest.raises(ValueError, match=r"^structured_outputs with json .*cannot be held: ") as caught:
        maker.make(StructuredOutputsParams(json=schema))  # type: ignore[arg-type]
    assert len(str(caught.value)) < 500
    return str(caught.value)


# Numbers

ALTERED = [2**53 + 1, -(2**53) - 1, 2**63 - 1, 10**400, 1234567890123456789, 1e20, 0.30000000000000004, 1e300]
ALTERED += [123456789.12345679, -8.82429767587017e-11]


@pytest.mark.parametrize("number", ALTERED)
@pytest.mark.parametrize(
    "keyword", ["const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]
)
def test_a_number_that_would_be_altered_is_refused_by_its_name(maker, keyword, number):
    for value in [[number], {"a": [1, number]}, number] if keyword in ("const", "enum") else [number]:
        held = [None, value] if keyword == "enum" else value
        schema = {"properties": {"x": {"anyOf": [{"type": "number", keyword: held}]}}}
        assert re.search(f" in {keyword} would be altered", refusal(maker, schema))
        assert number == 10**400 or (repr(number) in refusal(maker, json.dumps(schema)))


def test_numbers_are_checked_wherever_a_reference_may_lead(maker):
    for schema in ({"$ref": "#/x/0", "x": [{"const": 2**60}]}, {"properties": {"const": {"const": 2**60}}}):
        assert str(2**60) in refusal(maker, schema)


def test_other_numbers_are_held_exactly(maker, tokenizer):
    rng = random.Random(0)
    numbers = [2**53, -(2**53), 0, -17, 0.1, 2.5, 1e14, 123456789012345.0, -1.5e-10, 1.00000001e-14]
    numbers += [float(f"{rng.uniform(-1, 1) * 10 ** rng.randint(-6, 9):.15g}") for _ in range(20)]
    for number in numbers:
        assert json.loads(shortest(maker, tokenizer, {"const": number})) == number


def shortest(maker: GrammarMaker, tokenizer: Tokenizer, schema: object) -> bytes:
    """The text of the first allowed bytes, up to where it may end."""
    byte_ids = [i for i in range(tokenizer.vocab_size) if len(tokenizer.token_bytes(i)) == 1]
    grammar, text = maker.make(StructuredOutputsParams(json=schema)).fresh(), b""  # type: ignore[arg-type,union-attr]
    while not grammar.is_done and not (bits := grammar.allowed())[0] >> EOS & 1:
        token_id = next(i for i in byte_ids if bits[i // 32] >> (i % 32) & 1)
        grammar.accept(token_id)
        text += tokenizer.token_bytes(token_id)
    return text


def test_numbers_that_are_no_bounds_say_nothing(maker, tokenizer):
    schema = {"type": "integer", "default": 2**60, "examples": [0.30000000000000004]}
    assert allows(maker, tokenizer, schema, str(2**60))


# Objects

CASES: list[tuple[dict[str, object], str]] = [
    ({"properties": {"a": {"type": "integer"}}}, r'{"\u0061":"x"}'),
    ({"properties": {"é": {"type": "integer"}}, "required": ["é"]}, r'{"é":1,"\u00e9":"x"}'),
    ({"properties": {"a\n": {"type": "integer"}}}, r'{"a\u000a":"x"}'),
    ({"properties": {"a\n": {"type": "integer"}}}, r'{"a\n":"x"}'),
    ({"properties": {"a/b": {"type": "integer"}}}, r'{"a\/b":"x"}'),
    ({"properties": {'a"b': {"type": "integer"}}}, r'{"a\u0022b":"x"}'),
    ({"properties": {"a": False}}, r'{"\u0061":1}'),
    ({"patternProperties": {"^b": {"type": "string"}}}, r'{"\u0062":1}'),
    ({"additionalProperties": {"type": "integer"}, "properties": {"name": {"type": "string"}}}, r'{"\u006eame":5}'),
]


@pytest.mark.parametrize(("schema", "text"), CASES)
def test_no_key_hides_behind_an_escape(maker, tokenizer, schema, text):
    assert not jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))
    assert not allows(maker, tokenizer, schema, text)


def test_the_short_escapes_are_held(maker, tokenizer):
    for text in (r'{"a\n":1}', r'{"b":"\n\t\"\\\r\b\f"}', '{"é":"\U0001f600"}'):
        assert allows(maker, tokenizer, {"properties": {"a\n": {"type": "integer"}}}, text)


@pytest.mark.parametrize("character", [chr(code) for code in (*range(0x20), 0x22, 0x2F, 0x5C, 0x7F, 0x80, 0x2028)])
def test_a_text_of_the_schema_can_be_written_or_is_refused(maker, tokenizer, character):
    for keyword, value in (("const", "a" + character), ("enum", [["b", "a" + character]])):
        schema = {keyword: value}
        if character in "\n\r\t\b\f" or (character >= " " and character != "\x7f"):
            assert json.loads(shortest(maker, tokenizer, schema)) == (value if keyword == "const" else value[0])
        else:
            assert f"in {keyword} has U+{ord(character):04X}, which cannot be written" in refusal(maker, schema)


def test_a_key_may_have_any_character(maker, tokenizer):
    for code in (0, 0x1F, 0x7F, 0x22):
        value = {f"a{chr(code)}": 1}
        schema = {"properties": {f"a{chr(code)}": {"const": 1}}, "required": [f"a{chr(code)}"], "maxProperties": 1}
        assert json.loads(shortest(maker, tokenizer, {"type": "object", **schema})) == value


@pytest.mark.parametrize(
    ("schema", "most"),
    [
        ({"additionalProperties": {"type": "integer"}}, 1),
        ({"patternProperties": {"^b": {"type": "integer"}}, "additionalProperties": False}, 1),
        ({"required": ["a"], "properties": {"a": {"type": "integer"}}}, 2),
        ({"required": ["a", "b"], "additionalProperties": {"type": "integer"}}, 3),
    ],
)
def test_min_properties_is_held_or_refused(maker, tokenizer, schema, most):
    message = refusal(maker, {"type": "array", "items": schema | {"minProperties": most + 1}})
    assert f"minProperties {most + 1} is not held" in message
    assert f"; {most} is the most here" in message
    held = {"type": "object", **schema, "minProperties": most}
    for keys in (["b"] * 2, ["a", "b", "b"], ["a", "a"], ["a", "b", "c"], ["a", "b", "a"], ["b", "c"], ["b1", "b2"]):
        text = "{" + ",".join(f'"{key}":1' for key in keys) + "}"
        if allows(maker, tokenizer, held, text):
            jsonschema.validate(json.loads(text), held)
