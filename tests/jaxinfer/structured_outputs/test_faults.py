"""Forms that cannot be held: an error when the request is made, that says what is wrong, and quickly."""

import json
import resource
import threading
import time

import pytest

from jaxinfer.structured_outputs.grammar import GrammarMaker
from jaxinfer.structured_outputs.params import StructuredOutputsParams
from jaxinfer.token_masks import Grammar
from jaxinfer.tokenizers import load_tokenizer
from tests.vocabularies import BYTE_LEVEL_TOKENS, smollm2_path, write_byte_level_json


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> GrammarMaker:
    tokenizer = load_tokenizer(write_byte_level_json(tmp_path_factory.mktemp("tokenizer")))
    return GrammarMaker(tokenizer, tokenizer.vocab_size, (1,))


@pytest.fixture(scope="module")
def smollm2_maker() -> GrammarMaker:
    tokenizer = load_tokenizer(smollm2_path())
    return GrammarMaker(tokenizer, tokenizer.vocab_size, (2,))


def nested(opening: str, inner: str, closing: str, depth: int) -> str:
    return opening * depth + inner + closing * depth


def nested_dict(depth: int) -> dict[str, object]:
    schema: dict[str, object] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def rules(count: int, body: str, last: str) -> str:
    """A chain of rules, each of which needs the next."""
    chain = (f"r{i}: {body.format(f'r{i + 1}')}" for i in range(count))
    return "\n".join(["start: r0", *chain, f"r{count}: {last}"])


def references(count: int) -> dict[str, object]:
    """A chain of schemas, each of which needs the next."""
    defs: dict[str, object] = {f"r{i}": {"allOf": [{"$ref": f"#/$defs/r{i + 1}"}]} for i in range(count)}
    return {"$ref": "#/$defs/r0", "$defs": defs | {f"r{count}": {"type": "integer"}}}


NO_TEXT = "no token of the model goes on with a text that it allows"
BAD = [
    ("json", "{", "Expecting property name"),
    ("json", "[1]", "no JSON object"),
    ("json", "false", "allows nothing"),
    ("json", '{"const": NaN}', "JSON compliant"),
    ("json", {"const": object()}, "it has a object"),
    ("json", {"const": "\ud83e"}, "hex escape|surrogate"),
    ("json", {"type": "strin"}, "Invalid type: strin"),
    ("json", {"required": 5}, "Expected array"),
    ("json", {"uniqueItems": True, "type": "array"}, "uniqueItems"),
    ("json", {"not": {"type": "string"}}, 'Unimplemented keys: \\["not"\\]'),
    ("json", {"not": {}, "x-guidance": {"lenient": True}}, 'Unimplemented keys: \\["not"\\]'),
    ("json", {"oneOf": [{"type": "integer"}, {"type": "number"}], "x-guidance": {"coerce_one_of": True}}, "oneOf"),
    ("json", {"type": "string", "format": "no-such"}, "no-such"),
    ("json", {"type": "string", "pattern": "a(?=b)"}, "look-around"),
    ("json", {"$ref": "http://nowhere.example/schema"}, "nowhere.example"),
    ("json", {"$ref": "#/$defs/a"}, r"\$defs/a"),
    ("json", {"$ref": "#"}, NO_TEXT),
    ("json", {"allOf": [{"$ref": "#"}]}, NO_TEXT),
    ("json", {"enum": []}, "anyOf is empty"),
    ("json", {"type": "array", "minItems": 3, "maxItems": 2}, "minItems"),
    ("regex", "(", "unclosed group"),
    ("regex", "a(?=b)", "look-around"),
    ("regex", r"(a)\1", "backreferences"),
    ("regex", r"(?-u:\xff)", "invalid UTF-8"),
    ("regex", "[\ud800]", "lone surrogate"),
    ("choice", ["a", "b\udfff"], "lone surrogate"),
    ("grammar", "start: \ud800", "lone surrogate"),
    ("grammar", "", "no start rule found"),
    ("grammar", "start: b", 'unknown name: "b"'),
    ("grammar", 'start: a\na: a "x"', NO_TEXT),
    ("grammar", "start: A\nA: B\nB: A", "circular"),
    ("grammar", "start: <|no_such|>", "a name in <> is a special token's"),
    ("grammar", '{"grammars": []}', "expecting rule"),
    ("grammar", "start: /a/ & ~/a/", "& is only supported for tokens"),
    ("grammar", "start: A\nA: /a/ & ~/a/", NO_TEXT),
]


@pytest.mark.parametrize(("kind", "value", "reason"), BAD)
def test_a_wrong_form_is_an_error_that_names_it_and_says_why(maker, kind, value, reason):
    with pytest.raises(
        ValueError, match=rf"(?s)^structured_outputs with {kind} .*cannot be held: .*{reason}"
    ) as caught:
        maker.make(StructuredOutputsParams(**{kind: value}))
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


HUGE = {
    "nested text": ("json", nested('{"items":', "true", "}", 10_000)),
    "nested dict": ("json", nested_dict(10_000)),
    "nested a little": ("json", nested_dict(200)),
    "a megabyte": ("json", {"properties": {f"p{i}": {"type": "string", "title": "x" * 20} for i in range(18_000)}}),
    "a megabyte of text": ("json", json.dumps({"enum": [f"value {i}" for i in range(70_000)]})),
    "references": ("json", references(20_000)),
    "nested groups": ("regex", nested("(", "a", ")", 10_000)),
    "long": ("regex", "a" * 2_000_000),
    "repeated": ("regex", "a?" * 60_000),
    "choices": ("choice", [f"some text {i}" for i in range(50_000)]),
    "nested parentheses": ("grammar", "start: " + nested("(", '"a"', ")", 50_000)),
    "rules": ("grammar", rules(100_000, "{}", '"a"')),
}


@pytest.mark.parametrize("name", HUGE)
def test_a_huge_form_is_an_error_and_takes_no_more_than_a_moment(maker, name):
    kind, value = HUGE[name]
    begin = time.perf_counter()
    with pytest.raises(ValueError, match=f"^structured_outputs with {kind} "):
        maker.make(StructuredOutputsParams(**{kind: value}))
    assert time.perf_counter() - begin < 5


DEEP = {
    "rules": ("grammar", rules(8_000, "{}", '"a"')),
    "terminals": ("grammar", rules(8_000, "{}", '"a"').replace("r", "R").replace("staRt", "start")),
    "optional rules": ("grammar", rules(4_000, '("x" ({} | "z")+)?', '"a"')),
    "references": ("json", references(2_000)),
}


@pytest.mark.parametrize("name", DEEP)
def test_what_is_as_deep_as_is_allowed_does_not_overflow_the_stack(maker, name):
    """The library alone ends the process at half of that, on a thread with the usual 8 MiB."""
    kind, value = DEEP[name]
    grammar = maker.make(StructuredOutputsParams(**{kind: value})).fresh()
    assert grammar.allowed().any()


def test_what_overflows_the_stack_ends_another_process_than_this_one(maker):
    """The library follows the least number of 64 bits for ever."""
    least = f'{{"type": "integer", "minimum": {-(2**63)}, "maximum": {-(2**63)}}}'
    with pytest.raises(ValueError, match="nested too deeply"):
        maker.make(StructuredOutputsParams(grammar=f"start: %json {least}"))


HOSTILE = {"type": "integer", "multipleOf": 99991, "allOf": [{"multipleOf": 7919}, {"multipleOf": 104729}]}


def test_a_form_without_end_costs_a_second_once_and_no_memory_of_this_process(maker, monkeypatch):
    threads, memory = threading.active_count(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="takes more than 1 s of computation to read"):
        maker.make(StructuredOutputsParams(json=HOSTILE))
    assert threading.active_count() == threads
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 2**14  # KiB
    monkeypatch.delattr("jaxinfer.structured_outputs.trials.Trials.refusal")
    with pytest.raises(ValueError, match="takes more than 1 s of computation to read"):
        maker.make(StructuredOutputsParams(json=HOSTILE))


@pytest.mark.parametrize(
    "rule",
    ["e e | e e e | e e e e | /[a-z ]/", 'e e | "a" | ' + " | ".join(" ".join("e" * n) for n in range(3, 9))],
    ids=["many texts", "one text"],
)
def test_a_step_of_an_ambiguous_grammar_costs_little_or_is_an_error(smollm2_maker, rule):
    """The time of a mask grows with the square of the text and more: unlimited it takes seconds by the 150th token."""
    grammar = smollm2_maker.make(StructuredOutputsParams(grammar=f"start: e\ne: {rule}")).fresh()
    token_id = smollm2_maker._tokenizer.encode("a")[-1]
    with pytest.raises(ValueError, match="items"):
        write_quickly(grammar, [token_id] * 150)


def test_a_model_without_a_tokenizer_has_no_forms():
    with pytest.raises(ValueError, match=r"structured_outputs with regex 'a' .* no tokenizer"):
        GrammarMaker(None, 100, (1,)).make(StructuredOutputsParams(regex="a"))
    assert GrammarMaker(None, 100, (1,)).make(None) is None


def test_a_limit_that_is_reached_on_the_way_is_an_error(maker):
    """More rules may be under way than the library keeps; it then stops for good without raising anything."""
    template = maker.make(StructuredOutputsParams(grammar=rules(300, '({} | "z")? "x"?', '"a"')))
    grammar = template.fresh()
    with pytest.raises(ValueError, match=r"Current row has [0-9]+ items"):
        write(grammar, "xxxxx")
    with pytest.raises(ValueError, match=r"Current row has [0-9]+ items"):
        grammar.allowed()


def write(grammar: Grammar, text: str) -> None:
    for character in text:
        grammar.allowed()
        grammar.accept(BYTE_LEVEL_TOKENS.index(character))


def write_quickly(grammar: Grammar, token_ids: list[int]) -> None:
    for token_id in token_ids:
        begin = time.thread_time()
        grammar.allowed()
        assert time.thread_time() - begin < 0.2
        grammar.accept(token_id)
