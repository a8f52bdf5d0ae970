"""What a request may not draw, against sets of tokens: what is allowed, what a bad word would end, what comes early."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from jaxinfer.token_masks import NoTokenLeft, TokenBits, TokenMask, num_words, pack_token_bits

VOCAB_SIZE = 70  # no multiple of 32: the last word has bits that belong to no token


def tokens_of(words: TokenBits | None, vocab_size: int = VOCAB_SIZE) -> set[int]:
    """The tokens whose bits are set, by the definition of the bits."""
    if words is None:
        return set()
    return {t for t in range(vocab_size) if int(words[t // 32]) >> (t % 32) & 1}


class FakeGrammar:
    """Allows at each place of the text what it was told to, and is done at the end; bits of no token are set too."""

    def __init__(self, *allowed: set[int]) -> None:
        self.places, self.accepted = allowed, []

    @property
    def is_done(self) -> bool:
        return len(self.accepted) == len(self.places)

    def allowed(self) -> TokenBits:
        words = pack_token_bits(self.places[len(self.accepted)], VOCAB_SIZE)
        words[-1] |= np.uint32(0xFFFFFFFF << VOCAB_SIZE % 32 & 0xFFFFFFFF)
        return words

    def accept(self, token_id: int) -> None:
        if token_id not in self.places[len(self.accepted)]:
            raise ValueError(f"{token_id} may not come")
        self.accepted.append(token_id)


def test_the_packed_bits_worked_out_by_hand():
    words = pack_token_bits([0, 5, 31, 32, 64], 65)
    assert words.tolist() == [1 + 2**5 + 2**31, 1, 1]
    assert words.dtype == np.uint32


@pytest.mark.parametrize(("vocab_size", "words"), [(1, 1), (32, 1), (33, 2), (49152, 1536)])
def test_words_of_a_mask(vocab_size, words):
    assert num_words(vocab_size) == words
    assert pack_token_bits([], vocab_size).tolist() == [0] * words


def test_who_forbids_nothing_sends_nothing():
    for mask in (TokenMask(VOCAB_SIZE), TokenMask(VOCAB_SIZE, min_tokens=5), TokenMask(VOCAB_SIZE, stop_token_ids=[3])):
        assert mask.is_empty
        assert not mask.is_late
        assert mask.forbidden(0, []) is None


def test_masks_of_any_wishes_are_those_of_the_definition():
    """A token is forbidden if it is not allowed, is a stop token and comes too early, or would end a bad word."""
    rng = random.Random(0)
    num_late = 0
    for _ in range(300):
        allowed = rng.choice([None, rng.sample(range(VOCAB_SIZE), rng.randint(20, 69))])
        words = [[rng.randrange(6) for _ in range(rng.randint(1, 3))] for _ in range(rng.choice([0, 0, 3]))]
        stops, min_tokens = rng.sample(range(VOCAB_SIZE), rng.randint(0, 3)), rng.randint(0, 3)
        mask = TokenMask(
            VOCAB_SIZE, allowed_token_ids=allowed, bad_words=words, stop_token_ids=stops, min_tokens=min_tokens
        )
        output = [rng.randrange(6) for _ in range(rng.randint(0, 6))]
        expected = set() if allowed is None else set(range(VOCAB_SIZE)) - set(allowed)
        expected |= set(stops) if len(output) < min_tokens else set()
        expected |= {t for t in range(VOCAB_SIZE) for word in words if [*output, t][-len(word) :] == word}
        assert tokens_of(mask.forbidden(len(output), output)) == expected
        assert mask.is_late == any(len(word) > 1 for word in words)
        num_late += mask.is_late
    assert num_late > 50


def test_a_step_compares_no_words_but_those_that_the_last_token_may_go_on_with():
    """Else each step of each request would pay for all the bad words of one."""

    class Output(list):
        slices = 0

        def __getitem__(self, index):
            self.slices += isinstance(index, slice)
            return super().__getitem__(index)

    words = [[first, second, 9] for first in range(40) for second in range(40, 60)]
    mask = TokenMask(VOCAB_SIZE, bad_words=[*words, [41, 10]])
    for output, forbidden, compared in (([], set(), 0), ([3, 5], set(), 0), ([3, 40], {9}, 40), ([41, 41], {10}, 41)):
        output = Output(output)
        assert tokens_of(mask.forbidden(len(output), output)) == forbidden
        assert output.slices == compared


def test_a_mask_that_is_not_late_does_not_look_at_the_tokens():
    class Unread(Sequence):
        def __getitem__(self, index):
            raise AssertionError("read")

        def __len__(self):
            raise AssertionError("read")

    mask = TokenMask(VOCAB_SIZE, allowed_token_ids=[1, 2, 3], bad_words=[[1]], stop_token_ids=[2], min_tokens=4)
    assert tokens_of(mask.forbidden(3, Unread())) == set(range(VOCAB_SIZE)) - {3}
    assert tokens_of(mask.forbidden(4, Unread())) == set(range(VOCAB_SIZE)) - {2, 3}


def test_a_form_and_all_else_forbid_together():
    mask = TokenMask(VOCAB_SIZE, bad_words=[[4], [8, 5]], stop_token_ids=[69], min_tokens=2)
    grammar = FakeGrammar({4, 8, 69}, {5, 6}, {69})
    held = mask.held_to(grammar)
    assert held.is_late
    assert tokens_of(held.forbidden(0, [])) == set(range(VOCAB_SIZE)) - {8}
    held.accept(8)
    assert tokens_of(held.forbidden(1, [8])) == set(range(VOCAB_SIZE)) - {6}
    assert tokens_of(mask.forbidden(1, [8])) == {4, 5, 69}, "the mask it was made from is as it was"
    held.accept(6)
    assert not held.is_done
    held.accept(69)
    assert held.is_done
    assert not mask.is_done


def test_where_the_form_lets_only_its_end_come_it_may_come_before_min_tokens():
    held = TokenMask(VOCAB_SIZE, stop_token_ids=[69, 3], min_tokens=10).held_to(FakeGrammar({69}, {69, 5}))
    assert tokens_of(held.forbidden(0, [])) == set(range(VOCAB_SIZE)) - {69}
    held.accept(69)
    assert tokens_of(held.forbidden(1, [69])) == set(range(VOCAB_SIZE)) - {5}


def test_a_token_against_the_form_is_a_fault():
    with pytest.raises(ValueError, match="5 may not come"):
        TokenMask(VOCAB_SIZE).held_to(FakeGrammar({4})).accept(5)
    TokenMask(VOCAB_SIZE).accept(5)


@pytest.mark.parametrize(
    "wishes",
    [
        {"allowed_token_ids": [3], "bad_words": [[3]]},
        {"stop_token_ids": range(VOCAB_SIZE), "min_tokens": 1},
        {"allowed_token_ids": [3], "stop_token_ids": [3], "min_tokens": 1},
        {"bad_words": [[t] for t in range(VOCAB_SIZE)]},
    ],
)
def test_wishes_that_leave_no_token_are_refused_at_once(wishes):
    with pytest.raises(NoTokenLeft, match="every token of the vocabulary is forbidden"):
        TokenMask(VOCAB_SIZE, **wishes)


def test_that_no_token_is_left_may_show_only_later():
    late = TokenMask(VOCAB_SIZE, allowed_token_ids=[3, 4], bad_words=[[3, 3], [3, 4]])
    assert tokens_of(late.forbidden(1, [4])) == set(range(VOCAB_SIZE)) - {3, 4}
    with pytest.raises(NoTokenLeft):
        late.forbidden(1, [3])
    with pytest.raises(NoTokenLeft):
        TokenMask(VOCAB_SIZE, bad_words=[[8]]).held_to(FakeGrammar({8})).forbidden(0, [])


def test_nobody_can_write_what_several_steps_read():
    mask = TokenMask(VOCAB_SIZE, bad_words=[[1]], stop_token_ids=[2], min_tokens=1)
    by_form = TokenMask(VOCAB_SIZE).held_to(FakeGrammar({4}))
    for words in (mask.forbidden(0, []), mask.forbidden(1, []), by_form.forbidden(0, [])):
        with pytest.raises(ValueError, match="read-only"):
            words[0] = 0
