"""Calls are kept out of the text, and nothing else is: whatever a model writes, and however its tokens come."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxinfer.detokenizer import IncrementalDetokenizer
from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.tool_calls import ToolCallDetokenizer, ToolCallFormat
from jaxinfer.tool_calls.formats import Opening, Parsed
from jaxinfer.tool_calls.llama3 import LLAMA3
from jaxinfer.tool_calls.mistral import MISTRAL
from jaxinfer.tool_calls.qwen import QWEN
from tests.jaxinfer.tool_calls.vocabulary import ADDED, SPECIAL, byte_tokenizer

FORMATS = {"mistral": MISTRAL, "llama3": LLAMA3, "qwen": QWEN}
SILENT, SPELLED = byte_tokenizer(), byte_tokenizer(special=[])  # in the second, markers are but text
CALL = {
    "mistral": '[TOOL_CALLS] [{"name": "f", "arguments": {"a": "é"}}]',
    "llama3": '<|python_tag|>{"name": "f", "parameters": {"a": "é"}}',
    "qwen": '\n<tool_call>\n{"name": "f", "arguments": {"a": "é"}}\n</tool_call>',
}
PARTS = [
    *SPECIAL,
    *ADDED,
    *CALL.values(),
    '[{"name": "f", "arguments": {}}]',
    '{"name": "f", "parameters": {}}',
    '{"name": "f',
    "f[ARGS]{}",
    "<tool_c",
    "[TOOL_",
    "\n",
    "\n\n",
    " ",
    ";",
    "{",
    "hi",
    "👩‍👩‍👧",
]


def run(
    tokenizer: Tokenizer, tool_format: ToolCallFormat, pieces: list[list[int]], *, is_whole: bool = True
) -> tuple[list[str], ToolCallDetokenizer]:
    """The deltas, one for each piece and one for the end."""
    detokenizer = ToolCallDetokenizer(tokenizer, [], tool_format)
    deltas = [detokenizer.push(piece) for piece in pieces]
    return [*deltas, detokenizer.finish(is_whole=is_whole)], detokenizer


def one_by_one(tokenizer: Tokenizer, text: str) -> list[list[int]]:
    return [[token_id] for token_id in tokenizer.encode(text, add_special_tokens=False)]


def outputs(tokenizer: Tokenizer) -> st.SearchStrategy[list[int]]:
    encoded = st.lists(st.one_of(st.sampled_from(PARTS), st.text(max_size=3)), max_size=8).map("".join)
    ids = encoded.map(lambda text: tokenizer.encode(text, add_special_tokens=False))
    drawn = st.lists(st.integers(0, tokenizer.vocab_size + 3), max_size=6)
    return st.tuples(drawn, ids, drawn).map(lambda parts: [*parts[0], *parts[1], *parts[2]])


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_deltas_join_to_the_text_and_nothing_is_lost(name: str, data: st.DataObject) -> None:
    tokenizer = data.draw(st.sampled_from([SILENT, SPELLED]), label="tokenizer")
    ids = data.draw(outputs(tokenizer), label="output")
    is_whole = data.draw(st.booleans(), label="is whole")
    pieces, rest = [], ids
    while rest:
        size = data.draw(st.integers(1, len(rest)), label="pushed at once")
        pieces, rest = [*pieces, rest[:size]], rest[size:]
    deltas, detokenizer = run(tokenizer, FORMATS[name], pieces, is_whole=is_whole)
    assert "".join(deltas) == detokenizer.text
    plain = IncrementalDetokenizer(tokenizer)
    whole = plain.push(ids) + plain.finish()
    if not detokenizer.tool_calls:
        assert detokenizer.text == whole
    assert is_whole or not detokenizer.tool_calls
    _, other = run(tokenizer, FORMATS[name], [[token_id] for token_id in ids], is_whole=is_whole)
    assert other.text == detokenizer.text
    assert [(call.name, call.arguments) for call in other.tool_calls] == (
        [(call.name, call.arguments) for call in detokenizer.tool_calls]
    )


@pytest.mark.parametrize("tokenizer", [SILENT, SPELLED], ids=["silent", "spelled"])
@pytest.mark.parametrize("name", FORMATS)
def test_text_before_a_call_streams_and_the_call_does_not(name: str, tokenizer: Tokenizer) -> None:
    before = "Let me see: a < b, [T, é.\n"
    deltas, detokenizer = run(tokenizer, FORMATS[name], one_by_one(tokenizer, before + "..." + CALL[name]))
    assert detokenizer.text == before + "..."
    assert [(call.name, call.arguments) for call in detokenizer.tool_calls] == [("f", '{"a": "é"}')]
    given_out = [i for i, delta in enumerate(deltas) if delta]
    num_before = len(one_by_one(tokenizer, before + "..."))
    assert given_out[-1] == num_before - 1, "the last of the text comes with its own token"


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_that_was_cut_off_is_text(name: str) -> None:
    for length in (len(CALL[name]), -1, -10):
        text = "So: " + CALL[name][:length]
        _, detokenizer = run(SILENT, FORMATS[name], one_by_one(SILENT, text), is_whole=False)
        assert detokenizer.tool_calls == ()
        assert detokenizer.text == SILENT.decode(SILENT.encode(text, add_special_tokens=False))


@pytest.mark.parametrize("tail", ["<", "<tool_call", "\n", "\n<tool_call", "[TOOL_CALLS", "<|python_tag|"])
@pytest.mark.parametrize("name", FORMATS)
def test_what_only_began_like_a_marker_comes_at_the_end(name: str, tail: str) -> None:
    assert run(SPELLED, FORMATS[name], one_by_one(SPELLED, "a" + tail))[1].text == "a" + tail
    assert run(SPELLED, FORMATS[name], one_by_one(SPELLED, "a" + tail + "b"))[1].text == "a" + tail + "b"


def test_text_that_cannot_be_a_call_is_not_held() -> None:
    detokenizer = ToolCallDetokenizer(SPELLED, [], QWEN)
    [less], [letter] = one_by_one(SPELLED, "<x")
    assert (detokenizer.push([less]), detokenizer.push([letter])) == ("", "<x")


def test_llamas_json_is_a_call_at_the_very_beginning_only() -> None:
    call = '{"name": "f", "parameters": {}}'
    for text, num_calls in ((call, 1), ("\n " + call, 1), ('{ "name" :"f","parameters":{}}', 1), ("So: " + call, 0)):
        _, detokenizer = run(SILENT, LLAMA3, one_by_one(SILENT, text))
        assert len(detokenizer.tool_calls) == num_calls
        assert detokenizer.text == ("" if num_calls else text)


def test_llamas_other_json_streams() -> None:
    deltas, detokenizer = run(SILENT, LLAMA3, one_by_one(SILENT, '{"names": ["f"]}'))
    assert detokenizer.text == '{"names": ["f"]}'
    assert [delta for delta in deltas if delta][:2] == ['{"names', '"']


def test_space_is_not_held_for_ever() -> None:
    deltas, _ = run(SILENT, LLAMA3, one_by_one(SILENT, " " * 200))
    assert len([delta for delta in deltas if delta]) > 100


def test_a_special_token_inside_the_arguments_is_no_marker() -> None:
    """Mistral's list is one JSON value, whatever tokens it is made of; spelled, they are in the string."""
    text = '[TOOL_CALLS][{"name": "f", "arguments": {"a": "[TOOL_CALLS]f[ARGS]{}"}}]'
    _, detokenizer = run(SILENT, MISTRAL, one_by_one(SILENT, text))
    [call] = detokenizer.tool_calls
    assert (call.name, call.arguments) == ("f", '{"a": "[TOOL_CALLS]f[ARGS]{}"}')


def test_pythons_code_after_the_tag_is_text() -> None:
    _, detokenizer = run(SILENT, LLAMA3, one_by_one(SILENT, "<|python_tag|>print(1)"))
    assert (detokenizer.text, detokenizer.tool_calls) == ("print(1)", ())


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "3"])
def test_what_is_no_id_is_an_error_and_takes_nothing(wrong: object) -> None:
    detokenizer = ToolCallDetokenizer(SILENT, [], MISTRAL)
    with pytest.raises(ValueError, match="is no token id"):
        detokenizer.push([*SILENT.encode("hi"), wrong])  # type: ignore[list-item]
    assert detokenizer.push(SILENT.encode("hi")) == "hi"


@pytest.mark.parametrize("text", ["<", "<tool_call>", "\n", "[TOOL_CALLS]", '{"name":', "{", " "])
@pytest.mark.parametrize("name", FORMATS)
def test_the_time_of_a_token_does_not_grow(name: str, text: str) -> None:
    """No look at the text sees more than a few characters, until all of a call is seen once."""
    longest, num_parsed = 0, 0

    def find_opening(text: str, is_beginning: bool) -> Opening:
        nonlocal longest
        longest = max(longest, len(text))
        return FORMATS[name].find_opening(text, is_beginning)

    def parse(written: str) -> Parsed:
        nonlocal num_parsed
        num_parsed += 1
        return FORMATS[name].parse(written)

    counting = replace(FORMATS[name], find_opening=find_opening, parse=parse)
    run(SPELLED, counting, one_by_one(SPELLED, text) * 100)
    assert 0 < longest < 80
    assert num_parsed <= 1
