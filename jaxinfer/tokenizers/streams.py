"""Incremental decoding, once for vocabularies of bytes and once for vocabularies of text with bytes as a last resort.

The usual trick (decode a window of the last tokens, hold the text while it ends in U+FFFD) is a guess: U+FFFD may be
real text, and bytes that never become a character would be held for ever. So each stream knows what its vocabulary's
tokens are made of, and holds exactly what a later token could change.
"""

import codecs
from collections.abc import Callable, Sequence
from copy import copy

type Known = Callable[[Sequence[int]], list[int]]
"""Of some ids those that have a token; ValueError for what is no id."""


def incomplete_utf8_tail(data: bytes) -> int:
    """Number of bytes (0 to 3) at the end of ``data`` that begin a UTF-8 character without ending it."""
    _, consumed = codecs.utf_8_decode(data, "replace", False)
    return len(data) - consumed


def _tail_from_last(ids: Sequence[int], is_anchor: Callable[[int], bool]) -> Sequence[int]:
    """``ids`` from its last anchor on: what a stream must have seen to stand where all of ``ids`` would bring it."""
    for start in range(len(ids) - 1, -1, -1):
        if is_anchor(ids[start]):
            return ids[start:]
    return ids


class ByteStream:
    """Text of tokens that spell bytes: the bytes in a row, read as UTF-8, each ill-formed subsequence as one U+FFFD.

    At most three bytes are held.
    """

    def __init__(self, known: Known, token_bytes: Callable[[int], bytes], context: Sequence[int]) -> None:
        """``token_bytes`` gives a token's bytes, none for a special token."""
        self._known = known
        self._token_bytes = token_bytes
        self._held = b""
        for token_id in _tail_from_last(known(context), self._is_whole_text):
            self.push(token_id)

    def push(self, token_id: int) -> str:
        data = self._held + b"".join(map(self._token_bytes, self._known([token_id])))
        text, consumed = codecs.utf_8_decode(data, "replace", False)
        self._held = data[consumed:]
        return text

    def pending(self) -> str:
        return self._held.decode("utf-8", "replace")

    def settle(self) -> str:
        text, self._held = self.pending(), b""
        return text

    def fork(self) -> "ByteStream":
        return copy(self)

    def _is_whole_text(self, token_id: int) -> bool:
        data = self._token_bytes(token_id)
        try:
            return bool(data.decode("utf-8"))
        except UnicodeDecodeError:
            return False


class WindowStream:
    """Text of tokens that are text, of which only runs of byte tokens depend on their neighbours.

    What a token adds is the decoder's own word: its text after the last tokens that gave text, less the text of these.
    That much context is enough, since all that a decoder of this kind remembers is whether text has begun (it drops the
    leading space of the first word) and an open run of bytes, which is held here.
    """

    def __init__(
        self,
        known: Known,
        decode: Callable[[Sequence[int]], str],
        num_unsettled: Callable[[Sequence[int]], int],
        is_special: Callable[[int], bool],
        is_byte: Callable[[int], bool],
        context: Sequence[int],
    ) -> None:
        """``num_unsettled``: how many of the held ids, at their end, a later id could still change."""
        self._known = known
        self._decode = decode
        self._num_unsettled = num_unsettled
        self._is_special = is_special
        self._is_byte = is_byte
        self._before: list[int] = []
        self._before_text = ""
        self._held: list[int] = []
        for token_id in _tail_from_last(known(context), self._is_word):
            self.push(token_id)

    def push(self, token_id: int) -> str:
        known = self._known([token_id])
        if not known:
            return ""
        self._held = [*self._held, *known]  # a list of its own: a fork has the same
        num_settled = len(self._held) - self._num_unsettled(self._held)
        if num_settled == 0:
            return ""
        settled, self._held = self._held[:num_settled], self._held[num_settled:]
        text = self._text_after_context(settled)
        self._move_context(settled)
        return text

    def pending(self) -> str:
        return self._text_after_context(self._held)

    def settle(self) -> str:
        """The context stays a word, where there is one: bytes in it would be read together with later ones."""
        text = self.pending()
        if not self._before_text:
            self._move_context(self._held)
        self._held = []
        return text

    def fork(self) -> "WindowStream":
        return copy(self)

    def _text_after_context(self, ids: Sequence[int]) -> str:
        return self._decode([*self._before, *ids])[len(self._before_text) :]

    def _move_context(self, settled: Sequence[int]) -> None:
        """The context is the shortest end of ``settled`` that has text; while no text has begun, a lone first space.

        Special tokens inside it stay: they may be what ended a run of bytes.
        """
        starts = [i for i, token_id in enumerate(settled) if not self._is_special(token_id)]
        for start in reversed(starts):
            text = self._decode(settled[start:])
            if text:
                self._before, self._before_text = list(settled[start:]), text
                return
        if starts and not self._before_text:
            self._before = list(settled)

    def _is_word(self, token_id: int) -> bool:
        if self._is_special(token_id) or self._is_byte(token_id):
            return False
        return bool(self._decode([token_id]).strip())
