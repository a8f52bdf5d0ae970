"""A filter sees all that is written before anyone else does, and has the last word on it."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxinfer.detokenizer import IncrementalDetokenizer, TextEnd
from jaxinfer.output_filter import FilteredText, OutputFilter
from jaxinfer.stop_strings import StopStrings
from jaxinfer.tool_calls import ToolCallDetokenizer
from jaxinfer.tool_calls.mistral import MISTRAL
from jaxinfer.tool_calls.qwen import QWEN
from tests.jaxinfer.tool_calls.vocabulary import byte_tokenizer

TOKENIZER = byte_tokenizer()
CALL = '[TOOL_CALLS] [{"name": "f", "arguments": {"a": "secret"}}]'
FILTERED = TextEnd("content_filter")


@dataclass
class Recorder:
    """Lets everything through, and keeps what it was asked: a text, or None for ``settle``."""

    asked: list[str | None] = field(default_factory=list)

    def push(self, text: str) -> FilteredText:
        self.asked.append(text)
        return FilteredText(text)

    def settle(self) -> FilteredText:
        self.asked.append(None)
        return FilteredText("")


@dataclass
class Blocklist:
    """Ends the request before a word; holds back as many characters as may be the beginning of one."""

    word: str
    held: str = ""

    def push(self, text: str) -> FilteredText:
        text = self.held + text
        if self.word in text:
            return FilteredText(text[: text.index(self.word)], ends=True)
        settled = max(len(text) - len(self.word) + 1, 0)
        self.held = text[settled:]
        return FilteredText(text[:settled])

    def settle(self) -> FilteredText:
        text, self.held = self.held, ""
        return FilteredText(text)


@dataclass
class Redactor:
    """Holds everything back until a line is whole, and writes stars for its digits."""

    held: str = ""

    def push(self, text: str) -> FilteredText:
        lines, newline, self.held = (self.held + text).rpartition("\n")
        return FilteredText(re.sub(r"\d+", "***", lines) + newline)

    def settle(self) -> FilteredText:
        text, self.held = self.held, ""
        return FilteredText(re.sub(r"\d+", "***", text))


@dataclass
class Scripted:
    """Answers what it was told."""

    on_push: Callable[[str], Any] = FilteredText
    on_settle: Callable[[], Any] = lambda: FilteredText("")

    def push(self, text: str) -> FilteredText:
        return self.on_push(text)

    def settle(self) -> FilteredText:
        return self.on_settle()


def run(
    text: str, guard: OutputFilter, *, stop: str = "", calls: bool = False, at_once: int = 1
) -> tuple[list[str], IncrementalDetokenizer | ToolCallDetokenizer]:
    """The deltas, one for each push and one for the end."""
    stops = StopStrings([stop] if stop else [])
    detokenizer = (
        ToolCallDetokenizer(TOKENIZER, [], MISTRAL, stops=stops, output_filter=guard)
        if calls
        else IncrementalDetokenizer(TOKENIZER, stops=stops, output_filter=guard)
    )
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    deltas = [detokenizer.push(ids[i : i + at_once]) for i in range(0, len(ids), at_once)]
    deltas.append(detokenizer.finish(is_whole=True))
    assert "".join(deltas) == detokenizer.text
    return deltas, detokenizer


@settings(max_examples=60, deadline=None)
@given(text=st.text("abc漢 ", max_size=12), word=st.text("ab漢", min_size=1, max_size=3), at_once=st.integers(1, 4))
def test_a_blocked_word_is_never_given_out(text: str, word: str, at_once: int) -> None:
    deltas, detokenizer = run(text, Blocklist(word), at_once=at_once)
    before, found, _ = text.partition(word)
    assert detokenizer.text == before
    assert detokenizer.ended == (FILTERED if found else None)
    given_out = ""
    for delta in deltas[:-1]:
        given_out += delta
        assert before.startswith(given_out)


@pytest.mark.parametrize("calls", [False, True])
def test_a_fresh_detokenizer_has_a_filter_and_a_search_of_its_own(calls: bool) -> None:
    """Both write by turns; one is in the middle of a stop string, the other finds it."""
    prompt, stops = TOKENIZER.encode("漢")[:2], StopStrings(["stop"])
    first: IncrementalDetokenizer | ToolCallDetokenizer = (
        ToolCallDetokenizer(TOKENIZER, prompt, MISTRAL, stops=stops, output_filter=Blocklist("bad"))
        if calls
        else IncrementalDetokenizer(TOKENIZER, prompt, stops=stops, output_filter=Blocklist("bad"))
    )
    others = [first.fresh(None), first.fresh(Redactor()), first.fresh(Blocklist("bad"))]
    texts = ["x bad stop", "sto bad stop", "12 stop", "x ba"]
    for detokenizer, text in zip([first, *others], texts, strict=True):
        detokenizer.push(TOKENIZER.encode("漢")[2:] + TOKENIZER.encode(text)[:3])
    for detokenizer, text in zip([first, *others], texts, strict=True):
        detokenizer.push(TOKENIZER.encode(text)[3:])
        detokenizer.finish(is_whole=True)
    assert [detokenizer.text for detokenizer in (first, *others)] == ["漢x ", "漢sto bad ", "漢*** ", "漢x ba"]
    ends = [FILTERED, TextEnd("stop", "stop"), TextEnd("stop", "stop"), None]
    assert [detokenizer.ended for detokenizer in (first, *others)] == ends


def test_a_filter_may_change_the_text() -> None:
    deltas, detokenizer = run("no 123\nno 45", Redactor())
    assert (detokenizer.text, detokenizer.ended) == ("no ***\nno ***", None)
    assert [delta for delta in deltas if delta] == ["no ***\n", "no ***"], "the rest comes with the end"


def test_it_is_asked_once_for_each_piece_and_once_at_the_end() -> None:
    guard = Recorder()
    run("é漢!", guard)
    assert guard.asked == ["é", "漢", "!", None]


def test_the_text_of_the_answer_that_ends_is_given_out_and_nothing_after_it() -> None:
    asked = []

    def end(text: str) -> FilteredText:
        asked.append(text)
        return FilteredText("[cut]", ends=True)

    deltas, detokenizer = run("abc", Scripted(on_push=end, on_settle=pytest.fail))
    assert (asked, deltas, detokenizer.ended) == (["a"], ["[cut]", "", "", ""], FILTERED)


def test_after_an_end_at_the_last_piece_it_is_not_asked_for_the_rest() -> None:
    guard = Scripted(on_push=lambda text: FilteredText("[cut]", ends=True), on_settle=pytest.fail)
    detokenizer = IncrementalDetokenizer(TOKENIZER, output_filter=guard)
    assert detokenizer.push(TOKENIZER.encode("漢")[:-1]) == ""
    assert (detokenizer.finish(), detokenizer.ended) == ("[cut]", FILTERED)


def test_it_may_end_with_the_last_of_the_text() -> None:
    deltas, detokenizer = run("ab", Scripted(on_settle=lambda: FilteredText("!", ends=True)))
    assert (deltas, detokenizer.ended) == (["a", "b", "!"], FILTERED)


def test_it_does_not_see_what_a_stop_string_cuts_off() -> None:
    guard = Recorder()
    _, detokenizer = run("a bad END c", guard, stop="bad E")
    assert (guard.asked, detokenizer.text) == (["a", " ", None], "a ")
    assert detokenizer.ended == TextEnd("stop", "bad E")
    _, detokenizer = run("a bad END c", Blocklist("bad"), stop="bad E")
    assert (detokenizer.text, detokenizer.ended) == ("a ", TextEnd("stop", "bad E"))


def test_what_it_held_comes_with_the_stop_string_unless_it_ends_there() -> None:
    deltas, detokenizer = run("12a|34", Redactor(), stop="|")
    assert (deltas[:4], detokenizer.ended) == (["", "", "", "***a"], TextEnd("stop", "|"))
    deltas, detokenizer = run("12|34", Scripted(on_settle=lambda: FilteredText("!", ends=True)), stop="|")
    assert ("".join(deltas), detokenizer.ended) == ("12!", FILTERED)


def test_a_filter_that_ends_comes_before_a_later_stop_string() -> None:
    _, detokenizer = run("a bad b|", Blocklist("bad"), stop="|")
    assert (detokenizer.text, detokenizer.ended) == ("a ", FILTERED)


def test_it_sees_calls() -> None:
    _, detokenizer = run("So:" + CALL, Blocklist("secret"), calls=True)
    assert (detokenizer.ended, detokenizer.tool_calls) == (FILTERED, ())
    assert detokenizer.text == 'So: [{"name": "f", "arguments": {"a": "', "what was written of the call is text"
    _, detokenizer = run("So:" + CALL, Recorder(), calls=True)
    assert (detokenizer.ended, detokenizer.text, len(detokenizer.tool_calls)) == (None, "So:", 1)


def test_a_call_that_was_whole_before_the_filter_ended_is_none() -> None:
    """The caller must not run what an answer asks for that was cut off."""
    _, detokenizer = run(CALL + " bad", Blocklist("bad"), calls=True)
    assert (detokenizer.ended, detokenizer.tool_calls) == (FILTERED, ())
    assert detokenizer.text == TOKENIZER.decode(TOKENIZER.encode(CALL + " "))


def test_what_it_holds_stays_before_the_call() -> None:
    guard = Recorder()
    _, detokenizer = run("ab" + CALL, guard, calls=True)
    assert guard.asked[:3] == ["a", "b", None]
    for held in (Blocklist("abcdef"), Redactor()):
        _, detokenizer = run("ab" + CALL, held, calls=True)
        assert (detokenizer.text, len(detokenizer.tool_calls)) == ("ab", 1)
    spelled = byte_tokenizer(special=[])
    detokenizer = ToolCallDetokenizer(spelled, [], QWEN, output_filter=Redactor())
    detokenizer.push(spelled.encode('12<tool_call>\n{"name": "f", "arguments": {"a": 3}}\n</tool_call>ok'))
    detokenizer.finish(is_whole=True)
    assert detokenizer.text == '***<tool_call>\n{"name": "f", "arguments": {"a": ***}}\n</tool_call>ok'


def test_a_redacted_call_has_what_the_filter_let_through() -> None:
    class Renamer(Redactor):
        def settle(self) -> FilteredText:
            return FilteredText(super().settle().text.replace("secret", "public"))

    _, detokenizer = run(CALL, Renamer(), calls=True)
    assert [call.arguments for call in detokenizer.tool_calls] == ['{"a": "public"}']


@pytest.mark.parametrize("answer", ["text", None, ("text", False)])
def test_an_answer_of_another_type_is_named(answer: object) -> None:
    for guard in (Scripted(on_push=lambda text: answer), Scripted(on_settle=lambda: answer)):
        with pytest.raises(ValueError, match=re.escape(f"the output filter gave {answer!r}; it must give a Filtered")):
            run("a", guard)
