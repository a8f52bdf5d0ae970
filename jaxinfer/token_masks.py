"""Which tokens a request may not draw next, decided on the host and sent to the device as bits.

Most requests forbid nothing, and nothing is sent for them. What depends only on how many tokens were drawn
(``min_tokens``) or on nothing (allowed tokens, bad words of one token) is known when a step is launched; what depends
on the tokens themselves (a grammar, bad words of several tokens) only once the step before has been read.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
from jaxtyping import UInt32

_WORD_BITS = 32
_MASKS_KEPT = 256
"""Packed masks to remember: a request needs its own in every step, and most requests share one. One of 131,072 tokens
takes 16 KiB."""

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
    """What one sequence may not draw.

    Args:
        vocab_size: V of the model.
        allowed_token_ids: all that may be drawn, or None.
        bad_words: sequences of tokens, none empty, whose last one may not follow the others.
        stop_token_ids: what may not be drawn before ``min_tokens``.
        min_tokens: tokens to draw before that.
        grammar: the form that it is held to. Its end counts more than ``min_tokens``: where nothing but an end may
            come, it may come.

    Raises:
        NoTokenLeft: every token is forbidden from the start.
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        allowed_token_ids: Iterable[int] | None = None,
        bad_words: Sequence[Sequence[int]] = (),
        stop_token_ids: frozenset[int] = frozenset(),
        min_tokens: int = 0,
        grammar: Grammar | None = None,
    ) -> None:
        self._vocab_size, self._grammar = vocab_size, grammar
        self._min_tokens = min_tokens if stop_token_ids else 0
        self._prefixes = [(list(word[:-1]), word[-1]) for word in bad_words if len(word) > 1]
        forbidden = frozenset(word[0] for word in bad_words if len(word) == 1)
        if allowed_token_ids is not None:
            forbidden |= frozenset(range(vocab_size)) - frozenset(allowed_token_ids)
        self._always = pack_token_bits(forbidden, vocab_size) if forbidden else None
        self._early = pack_token_bits(forbidden | stop_token_ids, vocab_size) if self._min_tokens else self._always
        self._check_some_left(self._always)
        if grammar is None:
            self._check_some_left(self._early)

    @property
    def is_late(self) -> bool:
        """Whether it depends on the tokens drawn, so that it is known only once the last one has been read."""
        return self._grammar is not None or bool(self._prefixes)

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
        ended = [last for prefix, last in self._prefixes if _ends_with(output_token_ids, prefix)]
        forbidden = self._combined(early, ended)
        if early is not self._always and self._grammar is not None and self._leaves_none(forbidden):
            forbidden = self._combined(self._always, ended)
        self._check_some_left(forbidden)
        return forbidden

    def _combined(self, base: TokenBits | None, token_ids: Iterable[int]) -> TokenBits | None:
        """What ``base``, the grammar and some more tokens forbid together."""
        if self._grammar is None:
            words = np.zeros(num_words(self._vocab_size), np.uint32) if base is None else base.copy()
        else:
            words = np.bitwise_not(self._grammar.allowed())
            if base is not None:
                words |= base
        for token_id in token_ids:
            words[token_id // _WORD_BITS] |= np.uint32(1 << (token_id % _WORD_BITS))
        words.flags.writeable = False  # the device may read it while the step runs
        return words

    def _leaves_none(self, forbidden: TokenBits | None) -> bool:
        everything = pack_token_bits(frozenset(range(self._vocab_size)), self._vocab_size)
        return forbidden is not None and bool(((forbidden & everything) == everything).all())

    def _check_some_left(self, forbidden: TokenBits | None) -> None:
        if self._leaves_none(forbidden):
            raise NoTokenLeft("every token of the vocabulary is forbidden by what the request allows")


def num_words(vocab_size: int) -> int:
    """32-bit words that one row of a mask takes."""
    return -(-vocab_size // _WORD_BITS)


@lru_cache(maxsize=_MASKS_KEPT)
def pack_token_bits(token_ids: frozenset[int], vocab_size: int) -> TokenBits:
    """One row of a mask, read-only, with the bits of these tokens set."""
    bits = np.zeros(num_words(vocab_size) * _WORD_BITS, np.uint8)
    bits[list(token_ids)] = 1
    words = np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32, copy=False)
    words.flags.writeable = False
    return words


def _ends_with(token_ids: Sequence[int], tail: list[int]) -> bool:
    return list(token_ids[-len(tail) :]) == tail
