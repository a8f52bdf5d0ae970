"""A stop string ends the text wherever tokens cut it, and nothing of it is ever given out.

Reports that this file answers: a stop string across tokens was missed, or its start leaked to the stream; text that
only began like one was lost.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxinfer.detokenizer import IncrementalDetokenizer, TextEnd
from jaxinfer.stop_strings import StopSearch, StopStrings
from jaxinfer.tokenizers.streams import ByteStream
from jaxinfer.tool_calls import ToolCallDetokenizer
from jaxinfer.tool_calls.llama3 import LLAMA3
from jaxinfer.tool_calls.mistral import MISTRAL
from jaxinfer.tool_calls.qwen import QWEN
from tests.jaxinfer.tool_calls.vocabulary import byte_tokenizer
from tests.vocabulary_kinds import tokenizer_of_kind

CHARACTERS = "aab x漢字é👩\u200d\u0301"
SILENT, SPELLED = byte_tokenizer(), byte_tokenizer(special=[])


@dataclass
class Pieces:
    """A vocabulary of the given byte strings: token i is piece i."""

    pieces: Sequence[bytes]

    def text_stream(self, context: Sequence[int] = ()) -> ByteStream:
        return ByteStream(list, self.pieces.__getitem__, context)


def defined(text: str, strings: Sequence[str], *, start: int = 0, include: bool = False) -> tuple[str, str | None]:
    """The text, and the stop string that ends it: of those in ``text[start:]`` the first to end, then the longest."""
    for end in range(start, len(text) + 1):
        found = [string for string in strings if text[start:end].endswith(string)]
        if found:
            longest = max(found, key=len)
            return text[: end if include else end - len(longest)], longest
    return text, None


def splits(data: Any) -> Iterator[list[Any]]:
    """Every way to cut it into pieces."""
    for num_cuts in range(len(data)):
        for cuts in combinations(range(1, len(data)), num_cuts):
            yield [data[a:b] for a, b in zip((0, *cuts), (*cuts, len(data)), strict=True)]


def stopped(
    tokenizer: Any, pushes: Sequence[Sequence[int]], stops: StopStrings
) -> tuple[list[str], IncrementalDetokenizer]:
    """The deltas, one for each push and one for the end."""
    detokenizer = IncrementalDetokenizer(tokenizer, stops=stops)
    deltas = [detokenizer.push(ids) for ids in pushes]
    return [*deltas, detokenizer.finish()], detokenizer


@st.composite
def texts_and_stops(draw: st.DrawFn, max_size: int) -> tuple[str, list[str]]:
    """A text, a stop string from inside it, and perhaps more: from inside, nearly from inside, or from anywhere."""
    text = draw(st.text(CHARACTERS, min_size=1, max_size=max_size))

    def inside() -> str:
        start = draw(st.integers(0, len(text) - 1))
        return text[start : draw(st.integers(start + 1, len(text)))]

    anywhere = st.text(CHARACTERS, min_size=1, max_size=4)
    more = draw(st.lists(st.sampled_from(["inside", "longer", "anywhere"]), max_size=2))
    made = {"inside": inside, "longer": lambda: inside() + draw(anywhere), "anywhere": lambda: draw(anywhere)}
    return text, [inside(), *(made[kind]() for kind in more)]


@settings(max_examples=60, deadline=None)
@given(drawn=texts_and_stops(7), include=st.booleans())
def test_every_split_of_the_characters(drawn: tuple[str, list[str]], include: bool) -> None:
    text, strings = drawn
    stops = StopStrings(strings, include=include)
    expected, found = defined(text, strings, include=include)
    assert found is not None
    for pieces in splits(text):
        search = StopSearch(stops)
        released, seen = "", ""
        for piece in pieces:
            released, seen = released + search.push(piece), seen + piece
            if defined(seen, strings)[1] is None:
                held = seen[len(released) :]
                longest = max((end for s in strings for end in range(len(s)) if seen.endswith(s[:end])), default=0)
                assert (released + held, len(held)) == (seen, longest), "held is what may be the beginning of one"
            else:
                assert (released, search.found) == (expected, found), pieces
        assert released + search.settle("") == expected


@settings(max_examples=20, deadline=None)
@given(drawn=texts_and_stops(3), include=st.booleans(), min_tokens=st.integers(0, 3))
def test_every_split_of_the_bytes_into_tokens(drawn: tuple[str, list[str]], include: bool, min_tokens: int) -> None:
    text, strings = drawn
    stops = StopStrings(strings, include=include, min_tokens=min_tokens)
    for pieces in splits(text.encode()[-9:]):
        check(Pieces(pieces), list(range(len(pieces))), strings, stops)


def check(tokenizer: Any, ids: list[int], strings: Sequence[str], stops: StopStrings) -> TextEnd | None:
    """Compare the text of ``ids``, token by token and at once, with what is defined; returns how it ended."""
    pushes = [[token_id] for token_id in ids]
    plain, _ = stopped(tokenizer, pushes, StopStrings(()))
    whole, num_passed = "".join(plain), sum(map(len, plain[: stops.min_tokens]))
    if len(ids) <= stops.min_tokens:
        expected, found = whole, None
    else:
        expected, found = defined(whole, strings, start=num_passed, include=stops.include)
    deltas, detokenizer = stopped(tokenizer, pushes, stops)
    assert "".join(deltas) == detokenizer.text == expected
    assert detokenizer.ended == (None if found is None else TextEnd("stop", found))
    if found is not None and not stops.include:
        assert found not in expected[num_passed:]
    _, at_once = stopped(tokenizer, [ids], stops)
    assert (at_once.text, at_once.ended) == (expected, detokenizer.ended)
    return detokenizer.ended


REAL = ["spm", "spm as trained by default", "smollm2", "byte-fallback json", "tekken", "bytes"]


@pytest.fixture(scope="module", params=REAL)
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return SILENT if request.param == "bytes" else tokenizer_of_kind(request, tmp_path_factory)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_tokens_of_real_vocabularies(tokenizer: Any, data: st.DataObject) -> None:
    text = data.draw(st.text(CHARACTERS + "helo .", min_size=1, max_size=20), label="text")
    ids = tokenizer.encode(text, add_special_tokens=False)
    ids = ids[: data.draw(st.integers(0, len(ids)), label="tokens")]  # it may end inside a character
    whole = stopped(tokenizer, [ids], StopStrings(()))[1].text
    if not whole:
        return
    start = data.draw(st.integers(0, len(whole) - 1), label="start of the stop string")
    string = whole[start : data.draw(st.integers(start + 1, len(whole)), label="its end")]
    strings = [string, *data.draw(st.lists(st.text("helo a", min_size=1, max_size=3), max_size=2), label="more")]
    min_tokens = data.draw(st.sampled_from([0, 0, 1, 2]), label="min_tokens")
    stops = StopStrings(strings, include=data.draw(st.booleans(), label="include"), min_tokens=min_tokens)
    ended = check(tokenizer, ids, strings, stops)
    assert ended is not None or min_tokens


@pytest.mark.parametrize(
    ("text", "strings", "expected", "found"),
    [
        ("1xab2", ["ab", "xab"], "1", "xab"),  # of those that end together the longest
        ("1xab2", ["xab", "ab"], "1", "xab"),
        ("1abc2", ["abc", "ab"], "1", "ab"),  # one that begins another ends first
        ("1abcd2", ["abcd", "bc"], "1a", "bc"),
        ("aaaab", ["aaab"], "a", "aaab"),
        ("aabaaab", ["aaab"], "aab", "aaab"),
        ("xaab", ["aab", "ab", "b"], "x", "aab"),
        ("abab", ["abac"], "abab", None),
        ("abacababac", ["ababac"], "abac", "ababac"),
        ("1ab", ["ab", "ab"], "1", "ab"),
        ("1\n\n2", ["\n\n"], "1", "\n\n"),
        ("end", ["d"], "en", "d"),
    ],
)
def test_which_of_several_is_found(text: str, strings: list[str], expected: str, found: str | None) -> None:
    assert defined(text, strings) == (expected, found)
    for pieces in splits(text):
        search = StopSearch(StopStrings(strings))
        released = "".join(map(search.push, pieces)) + search.settle("")
        assert (released, search.found) == (expected, found)


def test_min_tokens_lets_the_text_of_the_first_tokens_pass() -> None:
    for min_tokens, expected in enumerate(["", "ab", "ab", "abab", "abab", "ababab", "ababab"]):
        search = StopSearch(StopStrings(["ab"], min_tokens=min_tokens))
        assert "".join(map(search.push, "ababab")) + search.settle("") == expected


def test_nothing_comes_after_the_end() -> None:
    detokenizer = IncrementalDetokenizer(SILENT, stops=StopStrings(["b"], include=True))
    assert [detokenizer.push(SILENT.encode(text)) for text in ("ab", "ab", "")] == ["ab", "", ""]
    assert (detokenizer.finish(), detokenizer.text) == ("", "ab")


def test_a_stop_string_in_what_the_end_settles() -> None:
    """Half a character reads as U+FFFD at the end, and a caller may stop at it."""
    half = SILENT.encode("a漢")[:-1]
    assert half[1:], "the character is several tokens"
    for is_called in (False, True):
        stops = StopStrings(["\ufffd"])
        detokenizer = (
            ToolCallDetokenizer(SILENT, [], MISTRAL, stops=stops)
            if is_called
            else IncrementalDetokenizer(SILENT, stops=stops)
        )
        assert (detokenizer.push(half), detokenizer.ended) == ("a", None)
        assert (detokenizer.finish(is_whole=False), detokenizer.ended) == ("", TextEnd("stop", "\ufffd"))


def test_the_work_for_a_character_does_not_grow() -> None:
    """Lines of code run: with a hundred strings of a thousand characters, that all but come, as with a short one."""
    rng = random.Random(0)
    tails = ["".join(rng.choices("ab", k=100)) + "c" for _ in range(100)]
    text = "a" * 900 + tails[0][:-1] + "a" * 899 + tails[1][:-1]

    def lines(strings: list[str]) -> int:
        search, num_lines = StopSearch(StopStrings(strings)), 0

        def count(frame: object, event: str, argument: object) -> Any:
            nonlocal num_lines
            num_lines += event == "line"
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            for character in text:
                search.push(character)
        finally:
            sys.settrace(before)
        assert search.found is None
        return num_lines

    assert lines(["a" * 900 + tail for tail in tails]) < 2 * lines(["xy"])


CALL = {
    "mistral": (MISTRAL, '[TOOL_CALLS] [{"name": "f", "arguments": {"a": "é"}}]'),
    "llama3": (LLAMA3, '<|python_tag|>{"name": "f", "parameters": {"a": "é"}}'),
    "qwen": (QWEN, '\n<tool_call>\n{"name": "f", "arguments": {"a": "é"}}\n</tool_call>'),
}


@pytest.mark.parametrize("tokenizer", [SILENT, SPELLED], ids=["silent", "spelled"])
@pytest.mark.parametrize("name", CALL)
def test_stop_strings_around_a_call(name: str, tokenizer: Any) -> None:
    """Before it, there is no call; inside it, what was written of it is text; behind it, it counts."""
    tool_format, call = CALL[name]
    answer = "So:" + call + " ok. No."
    shown = tokenizer.decode(tokenizer.encode(call, add_special_tokens=False))
    for string, expected, num_calls in (
        ("o:", "S", 0),
        ('"f', "So:" + shown[: shown.index('"f')], 0),
        ("k.", "So: o", 1),
        ("No.x", "So: ok. No.", 1),
    ):
        for pushed_at_once in (1, 7, 1000):
            ids = tokenizer.encode(answer, add_special_tokens=False)
            detokenizer = ToolCallDetokenizer(tokenizer, [], tool_format, stops=StopStrings([string]))
            pushes = [ids[i : i + pushed_at_once] for i in range(0, len(ids), pushed_at_once)]
            deltas = [detokenizer.push(some) for some in pushes]
            deltas.append(detokenizer.finish(is_whole=True))
            assert "".join(deltas) == detokenizer.text == expected, string
            assert len(detokenizer.tool_calls) == num_calls


def test_a_stop_string_counts_a_call_of_an_answer_that_ran_out_of_tokens() -> None:
    detokenizer = ToolCallDetokenizer(SPELLED, [], QWEN, stops=StopStrings(["</tool_call>"], include=True))
    detokenizer.push(SPELLED.encode(CALL["qwen"][1]))
    assert detokenizer.ended == TextEnd("stop", "</tool_call>")
    assert (detokenizer.finish(is_whole=False), len(detokenizer.tool_calls)) == ("", 1)


def test_a_marker_after_the_end_is_nothing() -> None:
    """Else what separates two calls would be text, though only one was written."""
    call = CALL["llama3"][1]
    for end in ("|", "漢"):
        stops = StopStrings(["|", "\ufffd"])
        detokenizer = ToolCallDetokenizer(SILENT, [], LLAMA3, stops=stops)
        half = SILENT.encode(end)[: 1 if end == "|" else -1]
        detokenizer.push([*SILENT.encode(call + ";"), *half, *SILENT.encode(call)])
        assert (detokenizer.finish(is_whole=True), detokenizer.text, len(detokenizer.tool_calls)) == ("", "", 1)


@pytest.mark.parametrize("tool_format", [MISTRAL, LLAMA3, QWEN], ids=lambda known: known.name)
def test_a_stop_string_that_begins_as_a_marker_does(tool_format: Any) -> None:
    marker = tool_format.markers[0]
    for string in (marker[:3], marker, marker + "x", "a" + marker[:3]):
        detokenizer = ToolCallDetokenizer(SPELLED, [], tool_format, stops=StopStrings([string]))
        for token_id in SPELLED.encode("ba" + marker + "x y", add_special_tokens=False):
            detokenizer.push([token_id])
        detokenizer.finish(is_whole=True)
        assert detokenizer.ended == TextEnd("stop", string)
        assert detokenizer.text == ("b" if string.startswith("a") else "ba")


def test_what_is_held_comes_before_a_silent_marker() -> None:
    """A text is not read on across one, as a character is not; and the marker counts for ``min_tokens``."""
    ids = SILENT.encode("ba" + CALL["mistral"][1] + "d")
    detokenizer = ToolCallDetokenizer(SILENT, [], MISTRAL, stops=StopStrings(["a [", "aa", "ad"]))
    for token_id in ids:
        detokenizer.push([token_id])
    detokenizer.finish(is_whole=True)
    assert (detokenizer.ended, detokenizer.text, len(detokenizer.tool_calls)) == (None, "bad", 1)
    ids = SILENT.encode("a[TOOL_CALLS]bb")
    for min_tokens, expected in ((2, "a"), (3, "ab"), (4, "abb")):
        detokenizer = ToolCallDetokenizer(SILENT, [], MISTRAL, stops=StopStrings(["b"], min_tokens=min_tokens))
        detokenizer.push(ids)
        detokenizer.finish(is_whole=True)
        assert detokenizer.text == expected
