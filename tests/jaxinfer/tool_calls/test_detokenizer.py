"""Calls are kept out of the text, and nothing else is: whatever a model writes, and however its tokens come."""

import json
import tracemalloc
from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxinfer.detokenizer import Detokenizer, IncrementalDetokenizer
from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.tool_calls import ToolCallDetokenizer, ToolCallFormat
from jaxinfer.tool_calls.llama3 import LLAMA3
from jaxinfer.tool_calls.mistral import MISTRAL
from jaxinfer.tool_calls.qwen import QWEN
from tests.jaxinfer.tool_calls.vocabulary import ADDED, SPECIAL, byte_tokenizer

FORMATS = {"mistral": MISTRAL, "llama3": LLAMA3, "qwen": QWEN}
SILENT, SPELLED = byte_tokenizer(), byte_tokenizer(special=[])  # in the second, most markers are but text
STRADDLING = byte_tokenizer(
    special=[],
    added=[
        "i<tool_",
        '_call>{"',
        "}</",
        "tool_call",
        "i[TOOL",
        '_CALLS][{"',
        "[ARGS]{",
        "n<|py",
        "_tag|>{",
        "}}]",
        "<",
        "call>\n",
    ],
)
TOKENIZERS = {"silent": SILENT, "spelled": SPELLED, "straddling": STRADDLING}
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


def cut(data: st.DataObject, ids: list[int]) -> list[list[int]]:
    pieces, rest = [], ids
    while rest:
        size = data.draw(st.integers(1, len(rest)), label="pushed at once")
        pieces, rest = [*pieces, rest[:size]], rest[size:]
    return pieces


def named(detokenizer: Detokenizer) -> list[tuple[str, object]]:
    return [(call.name, json.loads(call.arguments)) for call in detokenizer.tool_calls]


def plain_text(tokenizer: Tokenizer, tool_format: ToolCallFormat, ids: list[int]) -> str:
    """A marker without a text ends a character; in vocabularies of bytes nothing else hangs on a neighbour."""
    parts: list[list[int]] = [[]]
    for token_id in ids:
        if token_id in [tokenizer.token_id(marker) for marker in tool_format.markers] and not tokenizer.decode(
            [token_id]
        ):
            parts.append([])
        else:
            parts[-1].append(token_id)
    return "".join(map(tokenizer.decode, parts))


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_deltas_join_to_the_text_and_nothing_is_lost(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[data.draw(st.sampled_from(sorted(TOKENIZERS)), label="tokenizer")]
    ids = data.draw(outputs(tokenizer), label="output")
    is_whole = data.draw(st.booleans(), label="is whole")
    deltas, detokenizer = run(tokenizer, FORMATS[name], cut(data, ids), is_whole=is_whole)
    assert "".join(deltas) == detokenizer.text
    if not detokenizer.tool_calls:
        assert detokenizer.text == plain_text(tokenizer, FORMATS[name], ids)
    assert is_whole or not detokenizer.tool_calls
    _, other = run(tokenizer, FORMATS[name], [[token_id] for token_id in ids], is_whole=is_whole)
    assert (other.text, named(other)) == (detokenizer.text, named(detokenizer))


WORDS = ["hi", "So: ", "é😀.", "a < b", "a\n\nb", "1. ", "[x]", "{}"]
NEARLY = {
    "mistral": ['[TOOL_CALLS]"', '[TOOL_CALLS] no "', '[TOOL_CALLS][{"name": 5}]', '[TOOL_CALLS]f[ARGS]{"a"}', "[TOOL"],
    "llama3": ["<|python_tag|>", "<|python_tag|>print(1)", '<|python_tag|>{"name": 5}', '<|python_tag|>{"a"}', "<|py"],
    "qwen": ["<tool_call>", "<tool_call>no", '<tool_call>{"name": 5}', '<tool_call>{"name" 5}', "<tool_"],
}


def spelled_call(name: str, function: str, arguments: dict[str, object]) -> str:
    if name == "llama3":
        return "<|python_tag|>" + json.dumps({"name": function, "parameters": arguments})
    call = json.dumps({"name": function, "arguments": arguments})
    return f"[TOOL_CALLS] [{call}]" if name == "mistral" else f"\n<tool_call>\n{call}\n</tool_call>"


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_call_is_found_between_any_text(name: str, data: st.DataObject) -> None:
    """What goes in is known: words, what is nearly a call, and calls, in any order and cut anywhere."""
    tokenizer = TOKENIZERS[data.draw(st.sampled_from(["spelled", "straddling"]), label="tokenizer")]
    values = st.dictionaries(st.sampled_from(["a", "é"]), st.sampled_from([1, None, "x", "</tool_call>", ["[ARGS]"]]))
    call = st.tuples(st.sampled_from(["f", "get_x"]), values)
    drawn = data.draw(st.lists(st.one_of(st.sampled_from(WORDS + NEARLY[name]), call), max_size=6), label="parts")
    calls = [part for part in drawn if not isinstance(part, str)]
    text = "".join(part if isinstance(part, str) else "" for part in drawn)
    answer = "".join(part if isinstance(part, str) else spelled_call(name, *part) for part in drawn)
    ids = tokenizer.encode(answer, add_special_tokens=False)
    deltas, detokenizer = run(tokenizer, FORMATS[name], cut(data, ids))
    assert named(detokenizer) == calls
    assert "".join(deltas) == detokenizer.text == text


ANSWERS = {
    "mistral": 'hé[TOOL_CALLS]f[ARGS]{"a":"😀"}, ok[TOOL_CALLS][{"name":"g"}].',
    "llama3": '{"name":"f","parameters":{"a":"😀"}};<|python_tag|>x, ok<|python_tag|>{"name":"g"}.',
    "qwen": 'hé\n<tool_call>\n{"name":"f","arguments":{"a":"😀"}}\n</tool_call>, ok<tool_call>{"name":"g"}.',
}
TEXTS = {"mistral": "hé, ok.", "llama3": ";<|python_tag|>x, ok.", "qwen": "hé, ok."}


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("name", FORMATS)
def test_every_cut_into_three_gives_the_same(name: str, kind: str) -> None:
    ids = TOKENIZERS[kind].encode(ANSWERS[name], add_special_tokens=False)
    text = TEXTS[name] if kind != "silent" else TEXTS[name].replace("<|python_tag|>", "")
    for first, second in combinations_with_replacement(range(0, len(ids) + 1, 5), 2):
        deltas, detokenizer = run(TOKENIZERS[kind], FORMATS[name], [ids[:first], ids[first:second], ids[second:]])
        assert named(detokenizer) == [("f", {"a": "😀"}), ("g", {})]
        assert "".join(deltas) == detokenizer.text == text


@pytest.mark.parametrize("tokenizer", [SILENT, SPELLED], ids=["silent", "spelled"])
@pytest.mark.parametrize("name", FORMATS)
def test_text_before_a_call_streams_and_the_call_does_not(name: str, tokenizer: Tokenizer) -> None:
    before = "Let me see: a < b, [T, é.\n"
    deltas, detokenizer = run(tokenizer, FORMATS[name], one_by_one(tokenizer, before + "..." + CALL[name]))
    assert detokenizer.text == before + "..."
    assert named(detokenizer) == [("f", {"a": "é"})]
    given_out = [i for i, delta in enumerate(deltas) if delta]
    num_before = len(one_by_one(tokenizer, before + "..."))
    assert given_out[-1] == num_before - 1, "the last of the text comes with its own token"


@pytest.mark.parametrize("tokenizer", [SILENT, SPELLED], ids=["silent", "spelled"])
@pytest.mark.parametrize("name", FORMATS)
def test_text_behind_a_call_comes_with_the_end(name: str, tokenizer: Tokenizer) -> None:
    deltas, detokenizer = run(tokenizer, FORMATS[name], one_by_one(tokenizer, CALL[name] + " That was all."))
    assert deltas[-1] == detokenizer.text == " That was all."
    assert named(detokenizer) == [("f", {"a": "é"})]


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_that_was_cut_off_is_text(name: str) -> None:
    for length in (len(CALL[name]), -1, -10):
        text = "So: " + CALL[name][:length]
        _, detokenizer = run(SILENT, FORMATS[name], one_by_one(SILENT, text), is_whole=False)
        assert detokenizer.tool_calls == ()
        assert detokenizer.text == SILENT.decode(SILENT.encode(text, add_special_tokens=False))


NO_CALL = {  # with what shows that it is none
    "mistral": ["[TOOL_CALLS] I w", '[TOOL_CALLS]"', "[TOOL_CALLS]the n", "[TOOL_CALLS][5, 5 5", '[TOOL_CALLS]f{"a"]'],
    "llama3": [
        '{"name": "Alice", "age"',
        '{"names"',
        "{'",
        '{"name": "Alice"}',
        "<|python_tag|>p",
        '<|python_tag|>{"print"',
        "<|python_tag|>\n[",
    ],
    "qwen": ["<tool_call> t", "<tool_call>[", '<tool_call>{"name" ,', '<tool_call>{"name": 5}', "<tool_call>\n-"],
}


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("name", FORMATS)
def test_text_is_given_out_as_soon_as_it_can_be_no_call(name: str, kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    for answer in NO_CALL[name]:
        detokenizer = ToolCallDetokenizer(tokenizer, [], FORMATS[name])
        ids = tokenizer.encode(answer, add_special_tokens=False)
        detokenizer.push(ids[:-1])
        shown = detokenizer.text
        detokenizer.push(ids[-1:])
        assert detokenizer.text == tokenizer.decode(ids) != shown, "the last character decides"
        for token_id in tokenizer.encode(" and so on", add_special_tokens=False):
            assert detokenizer.push([token_id]) == tokenizer.decode([token_id])
        detokenizer.push(tokenizer.encode(CALL[name], add_special_tokens=False))
        detokenizer.finish(is_whole=True)
        assert named(detokenizer) == [("f", {"a": "é"})], answer


@pytest.mark.parametrize("name", ["mistral", "llama3"])
def test_what_only_spells_a_silent_marker_is_text(name: str) -> None:
    """A user who asks how calls are written gets an answer."""
    answer = f"So: {CALL[name]}"
    spelled = byte_tokenizer(special=[], added=[]).encode(answer)  # the same bytes, not the token
    assert SILENT.decode(spelled) == answer
    deltas, detokenizer = run(SILENT, FORMATS[name], [[token_id] for token_id in spelled])
    assert (detokenizer.text, detokenizer.tool_calls) == (answer, ())
    for end in range(len(spelled)):
        assert "".join(deltas[:end]) == SILENT.decode(spelled[:end]).rstrip("\ufffd"), "at once"


@pytest.mark.parametrize("before", ["😀", "é", "hi", ""])
def test_half_a_character_ends_at_a_silent_marker(before: str) -> None:
    half = SILENT.encode(before + "😀")[:-2]
    call = SILENT.encode(CALL["mistral"])
    _, detokenizer = run(SILENT, MISTRAL, [[token_id] for token_id in half + call])
    assert named(detokenizer) == [("f", {"a": "é"})]
    assert detokenizer.text == before + "\ufffd"


@pytest.mark.parametrize("vocabulary", TOKENIZERS)
@pytest.mark.parametrize("name", FORMATS)
def test_a_fresh_one_reads_calls_of_its_own(name: str, vocabulary: str) -> None:
    """By turns, a few tokens at a time, so that both are in the middle of a call at once."""
    tokenizer, tool_format = TOKENIZERS[vocabulary], FORMATS[name]
    first = ToolCallDetokenizer(tokenizer, [], tool_format)
    both, answers = (first, first.fresh(None)), ("hi" + CALL[name], CALL[name].replace("é", "other"))
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in answers]
    for start in range(0, max(map(len, ids)), 5):
        for detokenizer, own in zip(both, ids, strict=True):
            detokenizer.push(own[start : start + 5])
    for detokenizer, own in zip(both, ids, strict=True):
        alone = ToolCallDetokenizer(tokenizer, [], tool_format)
        alone.push(own)
        for each in (detokenizer, alone):
            each.finish(is_whole=True)
        assert detokenizer.text == alone.text
        assert [call.arguments for call in detokenizer.tool_calls] == [call.arguments for call in alone.tool_calls]
        assert len(detokenizer.tool_calls) == 1


def test_a_thought_that_the_prompt_begins_has_no_calls() -> None:
    for tokenizer in (
        byte_tokenizer(added=[*ADDED, "<think>", "</think>"]),
        SILENT,
        byte_tokenizer(special=["<think>", "</think>"]),
    ):
        prompt = tokenizer.encode("<s>user: hi\nassistant: <think>\n")
        call = CALL["qwen"]
        for closed, num_calls in ((f"Or {call}?\n</think>\n{call}", 1), (f"Or {call}?", 0)):
            detokenizer = ToolCallDetokenizer(tokenizer, prompt, QWEN)
            for token_id in tokenizer.encode(closed):
                detokenizer.push([token_id])
            detokenizer.finish(is_whole=True)
            assert len(detokenizer.tool_calls) == num_calls
            assert detokenizer.text.startswith(f"Or {call}?")
    detokenizer = ToolCallDetokenizer(SILENT, SILENT.encode("<think></think>"), QWEN)
    detokenizer.push(SILENT.encode(CALL["qwen"]))
    detokenizer.finish(is_whole=True)
    assert len(detokenizer.tool_calls) == 1


@pytest.mark.parametrize("name", [*FORMATS, None])
def test_a_growing_text_is_not_copied(name: str | None) -> None:
    """At its peak the memory holds the text once: neither a second one, nor old and new side by side."""
    word = "word" * 1000
    tokenizer = byte_tokenizer(added=[word])
    token_id = tokenizer.token_id(word)
    assert token_id is not None
    detokenizer: Detokenizer = (
        IncrementalDetokenizer(tokenizer) if name is None else ToolCallDetokenizer(tokenizer, [], FORMATS[name])
    )
    detokenizer.push([token_id])
    tracemalloc.start()
    for _ in range(500):
        detokenizer.push([token_id])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 500 * len(word) < peak < 1.5 * 500 * len(word)
    assert detokenizer.text == word * 501


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
