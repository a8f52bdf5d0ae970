"""The law of incremental text, for every kind of vocabulary, against the decode of the whole.

Reports that this file answers: tokens decoded one by one gave U+FFFD in Chinese; emoji were split into bytes; the
leading space of a word was lost or stripped twice; held-back text was lost at the end.
"""

import json
import re
from dataclasses import replace
from functools import cache
from itertools import chain, product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxinfer.detokenizer import IncrementalDetokenizer
from jaxinfer.tokenizers import load_tokenizer
from jaxinfer.tool_calls import ToolCallDetokenizer
from jaxinfer.tool_calls.mistral import MISTRAL
from tests.vocabularies import smollm2_path, write_byte_fallback_json
from tests.vocabulary_kinds import tokenizer_of_kind

SNIPPETS = [
    "👩‍👩‍👧",
    "🎉",
    "漢字かな",
    "e\u0301\u0323",
    "\x00\x07",
    "\ufffd",
    " he",
    "  ",
    "</s>",
    "a b",
    "\n",
    "☀é",
    "3.14",
]


KINDS = [
    "spm",
    "spm as trained by default",
    "smollm2",
    "byte-level json",
    "byte-fallback json",
    "metaspace json",
    "json with a gap",
    "tekken",
]
MORE_OF_THESE_KINDS = [
    "json that strips nothing",
    "spm in gguf",
    "mistral v1",
    "mistral v2",
    "mistral v3",
    "mistral v7",
    "mistral tekken",
    "qwen2 in gguf",
]


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request, tmp_path_factory):
    if request.param == "json that strips nothing":
        return load_tokenizer(write_stripping_json(tmp_path_factory.mktemp("vocabulary"), 0))
    return tokenizer_of_kind(request, tmp_path_factory)


def write_stripping_json(folder: Path, num_spaces: int) -> Path:
    """A vocabulary of text whose decoder takes so many spaces from the start, or fewer where there are fewer."""
    path = write_byte_fallback_json(folder, decoder="sequence") / "tokenizer.json"
    content = json.loads(path.read_text())
    [strip] = [step for step in content["decoder"]["decoders"] if step["type"] == "Strip"]
    strip["start"] = num_spaces
    path.write_text(json.dumps(content))
    return folder


def texts() -> st.SearchStrategy[str]:
    return st.lists(st.one_of(st.sampled_from(SNIPPETS), st.text(max_size=4)), max_size=5).map("".join)


def token_ids(tokenizer) -> st.SearchStrategy[list[int]]:
    """Ids of text, torn at any place, and ids at random: single bytes (the low ids) often, so that they meet.

    Among them are ids that a padded model has and its tokenizer does not.
    """
    low = st.integers(0, min(tokenizer.vocab_size, 270) - 1)
    beyond = st.integers(tokenizer.vocab_size, tokenizer.vocab_size + 300)
    drawn = st.lists(st.one_of(low, st.integers(0, tokenizer.vocab_size - 1), beyond), max_size=8)
    encoded = texts().map(lambda text: tokenizer.encode(text, add_special_tokens=False))
    torn = st.tuples(encoded, st.integers(0, 6), st.integers(0, 6)).map(lambda t: t[0][t[1] : len(t[0]) - t[2]])
    return st.lists(st.one_of(drawn, encoded, torn), max_size=3).map(lambda parts: list(chain.from_iterable(parts)))


def with_token(tokenizer, ids: list[int]) -> list[int]:
    return [token_id for token_id in ids if tokenizer.token_text(token_id)]


def without_shared_prefix(whole: str, prompt_text: str) -> str:
    for length in range(min(len(whole), len(prompt_text)), -1, -1):
        if whole[:length] == prompt_text[:length]:
            return whole[length:]
    raise AssertionError("the empty prefix is shared")


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_joined_deltas_are_the_decode_of_the_whole(tokenizer, data):
    check_deltas(tokenizer, data)


@pytest.mark.parametrize("tokenizer", MORE_OF_THESE_KINDS, indirect=True)
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_joined_deltas_of_more_vocabularies(tokenizer, data):
    check_deltas(tokenizer, data)


def check_deltas(tokenizer, data):
    prompt = data.draw(token_ids(tokenizer), label="prompt")
    output = data.draw(token_ids(tokenizer), label="output")
    whole, prompt_text = (tokenizer.decode(with_token(tokenizer, ids)) for ids in (prompt + output, prompt))
    expected = without_shared_prefix(whole, prompt_text)
    assert (tokenizer.decode(prompt + output), tokenizer.decode(prompt)) == (whole, prompt_text)

    detokenizer = IncrementalDetokenizer(tokenizer, prompt)
    deltas, rest = [], output
    while rest:
        size = data.draw(st.integers(1, len(rest)), label="pushed at once")
        deltas.append(detokenizer.push(rest[:size]))
        rest = rest[size:]
    deltas.append(detokenizer.finish())

    assert "".join(deltas) == expected
    assert detokenizer.text == expected


def test_a_fork_in_the_middle_of_a_character_goes_on_by_itself(tokenizer):
    """The stream that it came from has all of the character before the fork has more, and then a word."""
    whole, word = spelled_by_bytes(tokenizer, "😀"), tokenizer.encode("he", add_special_tokens=False)
    stream = tokenizer.text_stream([*word, *whole[:-2]])
    fork, other = stream.fork(), stream.fork()
    given = "".join(map(stream.push, [*whole[-2:], *word]))
    assert fork.pending() == other.pending()
    assert "".join(map(fork.push, whole[-2:])) + fork.settle() == "😀"
    assert other.push(whole[-2]) + "".join(map(other.push, [whole[-1], *word])) + other.settle() == given
    assert given == tokenizer.decode([*word, *whole, *word])[len(tokenizer.decode(word)) :]


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_fork_goes_on_by_itself(tokenizer, data):
    """Whatever the stream that it came from reads meanwhile, before it and after it."""
    ids = [data.draw(token_ids(tokenizer), label=name) for name in ("context", "both", "first", "second")]
    stream = tokenizer.text_stream(ids[0])
    given = "".join(map(stream.push, ids[1]))
    fork = stream.fork()
    both = [given, given]
    for which, token_id in interleaved(ids[2], ids[3], data.draw(st.randoms(use_true_random=False))):
        both[which] += (stream, fork)[which].push(token_id)
    for text, own, rest in zip(both, ids[2:], (stream.settle(), fork.settle()), strict=True):
        alone = tokenizer.text_stream(ids[0])
        assert text + rest == "".join(map(alone.push, ids[1] + own)) + alone.settle()


def interleaved(first: list[int], second: list[int], rng: Random) -> list[tuple[int, int]]:
    """Which of the two, and its next item, in any order of the two."""
    turns = [0] * len(first) + [1] * len(second)
    rng.shuffle(turns)
    items = iter(first), iter(second)
    return [(turn, next(items[turn])) for turn in turns]


def test_a_decoder_that_the_law_cannot_hold_for_is_refused(tmp_path):
    """A stream remembers one space at the start, and not how many of two are gone."""
    with pytest.raises(ValueError, match=r"decoder is .*'start': 2.* known are .*Strip of one space"):
        load_tokenizer(write_stripping_json(tmp_path, 2))


def spelled_by_bytes(tokenizer, text: str) -> list[int]:
    """``text`` in single bytes where the vocabulary has them, else as it is encoded."""
    in_bytes = [tokenizer.token_id(f"<0x{byte:02X}>") for byte in text.encode()]
    return tokenizer.encode(text, add_special_tokens=False) if None in in_bytes else in_bytes


def silent_token(tokenizer) -> int:
    """One that has a spelling and no text."""
    low = range(min(tokenizer.vocab_size, 300))
    return next(
        i
        for i in [tokenizer.eos_token_id, *low]
        if i is not None and tokenizer.token_text(i) and not tokenizer.decode([i])
    )


def check_calls(tokenizer):
    """Text that is whole or not, a special token as the marker of a call, and the call: in words and in bytes."""
    marker_id = silent_token(tokenizer)
    tool_format = replace(MISTRAL, markers=(tokenizer.token_text(marker_id),))
    call = '[{"name":"f","arguments":{"a":"😀"}}]'
    word = tokenizer.encode("he", add_special_tokens=False)
    for text, num_cut, shown in (("", 0, "he"), ("é", 0, "heé"), ("😀", 0, "he😀"), ("😀", 1, "he\ufffd")):
        in_bytes = spelled_by_bytes(tokenizer, text)
        if 0 < len(in_bytes) <= num_cut:
            continue  # a vocabulary in which the character is one token has no half of it
        before = word + in_bytes[: len(in_bytes) - num_cut]
        for behind in (spelled_by_bytes(tokenizer, call), tokenizer.encode(call, add_special_tokens=False)):
            if call not in tokenizer.decode(behind):
                continue  # a vocabulary without a character of it
            detokenizer = ToolCallDetokenizer(tokenizer, word, tool_format)
            deltas = [detokenizer.push([token_id]) for token_id in [*before, marker_id, *behind]]
            deltas.append(detokenizer.finish(is_whole=True))
            assert "".join(deltas) == detokenizer.text
            assert [(found.name, found.arguments) for found in detokenizer.tool_calls] == [("f", '{"a": "😀"}')]
            text_before = detokenizer.text.lstrip().rstrip("\ufffd") + "\ufffd" * detokenizer.text.endswith("\ufffd")
            assert text_before == shown, "half a character is one U+FFFD or several"


def test_a_call_is_found_behind_any_text(tokenizer):
    check_calls(tokenizer)


@pytest.mark.parametrize("tokenizer", MORE_OF_THESE_KINDS, indirect=True)
def test_a_call_is_found_in_more_vocabularies(tokenizer):
    check_calls(tokenizer)


def test_what_is_settled_is_given_for_good(tokenizer):
    """Settled in the middle of a character or behind it, the parts read as each by itself, and words go on."""
    whole, half = spelled_by_bytes(tokenizer, "😀"), spelled_by_bytes(tokenizer, "😀")[:-1]
    word = tokenizer.encode("he", add_special_tokens=False)
    for first in (whole, half):
        stream = tokenizer.text_stream(tokenizer.encode("he"))
        given = "".join(map(stream.push, first)) + stream.settle()
        assert given == tokenizer.decode([*word, *first])[len(tokenizer.decode(word)) :]
        assert stream.pending() == stream.settle() == ""
        later = "".join(map(stream.push, whole)) + stream.pending()
        assert later == "😀"
    stream = tokenizer.text_stream()
    given = "".join(map(stream.push, whole)) + stream.settle()
    assert given + "".join(map(stream.push, word)) == tokenizer.decode([*whole, *word]), "the word keeps its space"


def ids_that_meet(tokenizer) -> list[int]:
    """One id of every part that the text of a neighbour can hang on."""
    spelled = {tokenizer.token_text(token_id): token_id for token_id in range(tokenizer.vocab_size)}
    lead, follow = ("<0xC3>", "<0xA9>") if "<0xC3>" in spelled else ("Ã", "©")
    space = next(space for space in (" ", "\u2581", "Ġ") if space in spelled)
    word = "h" if "h" in spelled else "\u2581h"
    parts = [spelled[part] for part in (lead, follow, space, word) if part in spelled]
    without_token = spelled.get("", tokenizer.vocab_size)
    return [*parts, tokenizer.eos_token_id or 0, without_token]


def test_all_short_sequences(tokenizer):
    """Every order of a word, a space, the two bytes of a character, a special token and an id without a token, and
    every end of the prompt.
    """
    meeting = ids_that_meet(tokenizer)
    assert len(meeting) >= 6
    decode = cache(tokenizer.decode)  # the beginnings are the same ones again and again
    for ids in chain.from_iterable(product(meeting, repeat=length) for length in range(1, 5)):
        whole = decode(tuple(with_token(tokenizer, ids)))
        for end in range(len(ids)):
            detokenizer = IncrementalDetokenizer(tokenizer, ids[:end])
            deltas = [detokenizer.push([token_id]) for token_id in ids[end:]]
            expected = without_shared_prefix(whole, decode(ids[:end]))
            assert "".join(deltas) + detokenizer.finish() == expected, (ids, end)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=texts())
def test_without_a_prompt_it_is_the_decode_of_the_output(tokenizer, text):
    ids = tokenizer.encode(text)
    detokenizer = IncrementalDetokenizer(tokenizer)
    assert "".join(map(detokenizer.push, ([token_id] for token_id in ids))) + detokenizer.finish() == (
        tokenizer.decode(ids)
    )


def test_plain_words_are_not_held(tokenizer):
    ids = tokenizer.encode("hello head")
    detokenizer = IncrementalDetokenizer(tokenizer)
    for i, token_id in enumerate(ids):
        detokenizer.push([token_id])
        assert detokenizer.text == tokenizer.decode(ids[: i + 1])


def test_the_prompt_decides_on_the_first_space(shared_data):
    tokenizer = load_tokenizer(shared_data / "stories260K-hf")
    once = tokenizer.encode("Once", add_special_tokens=False)
    assert IncrementalDetokenizer(tokenizer, [tokenizer.bos_token_id]).push(once) == "Once"
    assert IncrementalDetokenizer(tokenizer, tokenizer.encode("there was")).push(once) == " Once"


def test_greedy_story_after_bos_alone(shared_data):
    tokenizer = load_tokenizer(shared_data / "stories260K-hf")
    story = (shared_data / "stories260K-greedy-200.txt").read_text().removesuffix("\n")
    bos, *output = tokenizer.encode(story)
    detokenizer = IncrementalDetokenizer(tokenizer, [bos])
    assert "".join(detokenizer.push([token_id]) for token_id in output) == story
    assert detokenizer.finish() == ""


def test_a_character_comes_whole_or_at_the_end():
    tokenizer = load_tokenizer(smollm2_path())
    ids = tokenizer.encode("🦙")
    assert len(ids) > 1
    detokenizer = IncrementalDetokenizer(tokenizer)
    assert [detokenizer.push([token_id]) for token_id in ids] == [""] * (len(ids) - 1) + ["🦙"]
    assert detokenizer.push(ids[:-1]) == ""
    assert detokenizer.finish() == "\ufffd"


def test_a_prompt_that_ends_inside_a_character_leaves_it_to_the_output():
    tokenizer = load_tokenizer(smollm2_path())
    ids = tokenizer.encode("a🦙")
    assert IncrementalDetokenizer(tokenizer, ids[:-1]).push(ids[-1:]) == "🦙"


@pytest.mark.parametrize("beyond", [0, 1, 300, 2**31, 2**32, 2**70])
def test_an_id_beyond_the_vocabulary_has_no_text(tokenizer, beyond):
    """Qwen2's embedding has 151,936 rows for 151,6xx tokens: a sample beyond them must not stop the engine."""
    padding = tokenizer.vocab_size + beyond
    assert tokenizer.token_text(padding) == tokenizer.decode([padding]) == tokenizer.decode([padding] * 2) == ""
    ids = tokenizer.encode("☀ hello", add_special_tokens=False)
    padded = [padding, *chain.from_iterable((token_id, padding) for token_id in ids)]
    assert tokenizer.decode(padded) == tokenizer.decode(ids)

    plain, stream = tokenizer.text_stream(), tokenizer.text_stream([padding])
    for token_id in ids:
        assert stream.push(padding) == ""
        assert (stream.push(token_id), stream.pending()) == (plain.push(token_id), plain.pending())
    detokenizer = IncrementalDetokenizer(tokenizer, padded)
    assert detokenizer.push([padding]) == detokenizer.finish() == ""


def test_an_id_in_a_gap_has_no_text(tmp_path):
    tokenizer = load_tokenizer(write_byte_fallback_json(tmp_path, decoder="sequence", gap=7))
    lead, follow, gap = 3 + 0xC3, 3 + 0xA9, 3 + 256
    assert [tokenizer.token_text(gap + i) for i in (-1, 0, 6, 7)] == ["<0xFF>", "", "", "\u2581"]
    assert tokenizer.decode([lead, gap, follow]) == "é"
    stream = tokenizer.text_stream([lead, gap])
    assert (stream.push(gap + 6), stream.push(follow), stream.pending()) == ("", "", "é")


@pytest.mark.parametrize("wrong", [-1, -(2**40), np.int32(-5), 1.0, np.float32(2), "3", None, True])
def test_what_is_no_id_is_an_error_and_takes_nothing(tokenizer, wrong):
    ids = tokenizer.encode("he", add_special_tokens=False)
    stream, detokenizer = tokenizer.text_stream(ids[:-1]), IncrementalDetokenizer(tokenizer)
    calls = [
        lambda: tokenizer.token_text(wrong),
        lambda: tokenizer.decode([*ids, wrong]),
        lambda: tokenizer.text_stream([wrong, *ids]),
        lambda: stream.push(wrong),
        lambda: IncrementalDetokenizer(tokenizer, [wrong, *ids]),
        lambda: detokenizer.push([*ids, wrong]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=re.escape(f"{wrong!r} is no token id")):
            call()
    assert detokenizer.push(ids) == tokenizer.decode(ids)
    assert stream.push(ids[-1]) == tokenizer.text_stream(ids[:-1]).push(ids[-1])


def test_numpys_whole_numbers_are_ids(tokenizer):
    ids = tokenizer.encode("he")
    assert IncrementalDetokenizer(tokenizer).push(np.array(ids, np.int32)) == tokenizer.decode(ids)


def test_the_cost_of_a_token_does_not_grow(tokenizer, monkeypatch):
    """No decode may see more than a handful of ids, however long prompt and output are."""
    longest = 0
    decode = type(tokenizer).decode

    def counting_decode(self, ids):
        nonlocal longest
        longest = max(longest, len(ids))
        return decode(self, ids)

    monkeypatch.setattr(type(tokenizer), "decode", counting_decode)
    words = tokenizer.encode("hello head. \x07🎉 ", add_special_tokens=False)
    detokenizer = IncrementalDetokenizer(tokenizer, words * 200)
    for token_id in words * 200:
        detokenizer.push([token_id])
    assert longest <= 12
