"""Which tokens a request may not draw next, decided on the host and sent to the device as bits.

Most requests forbid nothing, and nothing is sent for them. What depends only on how many tokens were drawn
(``min_tokens``) or on nothing (allowed tokens, bad words of one token) is known when a step is launched; what depends
on the tokens themselves (a grammar, bad words of several tokens) only once the step before has been read.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from functools import lru_cache
from typing import Protocol

import numpy as np
from jaxtyping import UInt32

_WORD_BITS = 32

type TokenBits = UInt32[np.ndarray, "words"]
"""One row of a mask: bit ``t % 32`` of word ``t // 32`` belongs to token t."""


class Grammar(Protocol):
    """The form that one sequence is held to, and how far it has come in it."""

    @property
    def is_done(self) -> bool:
        """Whether the text is complete and nothing can follow it."""

    def allowed(self) -> TokenBits:
        """A fresh mask of the tokens that may come next; EOS where the text may end."""

    def accept(self, token_id: int) -> None:
        """Take in the next token. Raises ValueError for one that may not come next."""


class NoTokenLeft(ValueError):
    """A request's own wishes forbid every token."""


class TokenMask:
    """What one sequence may not draw; without a grammar it has no state, and the sequences of a request share it.

    Args:
        vocab_size: V of the model.
        allowed_token_ids: all that may be drawn, or None.
        bad_words: sequences of tokens, none empty, whose last one may not follow the others.
        stop_token_ids: what may not be drawn before ``min_tokens``.
        min_tokens: tokens to draw before that.

    Raises:
        NoTokenLeft: every token is forbidden from the start.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        allowed_token_ids: Iterable[int] | None = None,
        bad_words: Iterable[Sequence[int]] = (),
        stop_token_ids: Iterable[int] = (),
        min_tokens: int = 0,
    ) -> None:
        self._vocab_size = vocab_size
        self._grammar: Grammar | None = None
        bad_words, stop_token_ids = list(bad_words), list(stop_token_ids)
        self._continued = _by_token_before(bad_words)
        self._min_tokens = min_tokens if stop_token_ids else 0
        single = [word[0] for word in bad_words if len(word) == 1]
        others = None if allowed_token_ids is None else ~pack_token_bits(allowed_token_ids, vocab_size)
        self._always = self._combined(others, tokens=single)
        self._early = self._combined(self._always, tokens=stop_token_ids) if self._min_tokens else self._always
        self._check_some_left(self._early)

    def held_to(self, grammar: Grammar) -> "TokenMask":
        """The mask of a sequence that is held to a form as well, whose state belongs to it alone.

        The form's end counts more than ``min_tokens``: where nothing but an end may come, it may come.
        """
        mask = copy(self)
        mask._grammar = grammar
        return mask

    @property
    def is_empty(self) -> bool:
        """Whether it never forbids anything."""
        return self._early is None and not self.is_late

    @property
    def is_late(self) -> bool:
        """Whether it depends on the tokens drawn, so that it is known only once the last one has been read."""
        return self._grammar is not None or bool(self._continued)

    @property
    def is_done(self) -> bool:
        """Whether the form is complete and nothing can follow."""
        return self._grammar is not None and self._grammar.is_done

    def accept(self, token_id: int) -> None:
        """Take in a drawn token that does not end the sequence. Raises ValueError if it was forbidden by the form."""
        if self._grammar is not None:
            self._grammar.accept(token_id)

    def forbidden(self, sample_index: int, output_token_ids: Sequence[int]) -> TokenBits | None:
        """What may not be drawn next, read-only; None if nothing is forbidden.

        Args:
            sample_index: how many tokens were drawn before.
            output_token_ids: those tokens; read only if the mask ``is_late``.

        Raises:
            NoTokenLeft: that would be everything.
        """
        early = self._early if sample_index < self._min_tokens else self._always
        if not self.is_late:
            return early
        continued = self._continued.get(output_token_ids[-1], ()) if output_token_ids else ()
        ended = [last for prefix, last in continued if _ends_with(output_token_ids, prefix)]
        by_form = None if self._grammar is None else ~self._grammar.allowed()
        forbidden = self._combined(by_form, early, tokens=ended)
        if early is not self._always and by_form is not None and self._leaves_none(forbidden):
            forbidden = self._combined(by_form, self._always, tokens=ended)
        self._check_some_left(forbidden)
        return forbidden

    def _combined(self, *parts: TokenBits | None, tokens: Sequence[int]) -> TokenBits | None:
        """What some masks and some more tokens forbid together, read-only; None: nothing."""
        given = [part for part in parts if part is not None]
        if not tokens and len(given) < 2:
            return _read_only(given[0]) if given else None
        words = np.zeros(num_words(self._vocab_size), np.uint32)
        for part in given:
            words |= part
        for token_id in tokens:
            words[token_id // _WORD_BITS] |= np.uint32(1 << (token_id % _WORD_BITS))
        return _read_only(words)

    def _leaves_none(self, forbidden: TokenBits | None) -> bool:
        everything = _all_tokens(self._vocab_size)
        return forbidden is not None and bool((forbidden & everything == everything).all())

    def _check_some_left(self, forbidden: TokenBits | None) -> None:
        if self._leaves_none(forbidden):
            raise NoTokenLeft("every token of the vocabulary is forbidden by what the request allows")


def num_words(vocab_size: int) -> int:
    """32-bit words that one row of a mask takes."""
    return -(-vocab_size // _WORD_BITS)


def pack_token_bits(token_ids: Iterable[int], vocab_size: int) -> TokenBits:
    """One row of a mask with the bits of these tokens set, none of which is outside the vocabulary."""
    bits = np.zeros(num_words(vocab_size) * _WORD_BITS, np.uint8)
    bits[list(token_ids)] = 1
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32, copy=False)


@lru_cache
def _all_tokens(vocab_size: int) -> TokenBits:
    return _read_only(pack_token_bits(range(vocab_size), vocab_size))


def _read_only(words: TokenBits) -> TokenBits:
    """The same words, which nobody may change: the sequences of a request share them, and all their steps."""
    words.flags.writeable = False
    return words


def _by_token_before(bad_words: Iterable[Sequence[int]]) -> dict[int, list[tuple[list[int], int]]]:
    """The words of several tokens, as what comes before the last one, and that; by the token that it has to follow.

    So a step looks at the words that may end in it and not at all of them.
    """
    continued: dict[int, list[tuple[list[int], int]]] = {}
    for word in bad_words:
        if len(word) > 1:
            continued.setdefault(word[-2], []).append((list(word[:-1]), word[-1]))
    return continued


def _ends_with(token_ids: Sequence[int], tail: list[int]) -> bool:
    return list(token_ids[-len(tail) :]) == tail
