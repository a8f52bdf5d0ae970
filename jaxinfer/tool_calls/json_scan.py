"""Where a JSON value ends, found while it still grows, and that it can no longer be one, found at once.

The scan is strict about structure (strings, brackets, commas, colons) and not about numbers and words, which the
decoder reads in the end. Being strict it also bounds the work of a reader that tries again behind each failure: two
values that begin at different places of a text disagree on what is inside a string, so soon all but two have failed.
"""

import re

_SPACE = re.compile(r"[ \t\n\r]*+")
_IN_STRING = re.compile(r'[^"\\]*+')
_WORD = re.compile(r"[-+.\w]*+")

_VALUE, _FIRST_ITEM, _FIRST_KEY, _KEY, _COLON, _BEHIND = range(6)  # what may come next, outside of strings
_CLOSES = {"{": "}", "[": "]"}


class JsonScan:
    """Scans one object or list, whose first character is the first that is pushed.

    Attributes:
        has_failed: no further text makes it JSON, or an object with such keys.
        objects: of a list, where its objects that are whole begin and end, in characters from its own beginning; of an
            object, where it does itself.
        own_keys: of an object, its keys so far, as they are written.
    """

    def __init__(self, keys: frozenset[str] | None) -> None:
        """``keys``: all that the object may have; None for any."""
        self._keys = keys
        self.has_failed = False
        self.objects: list[tuple[int, int]] = []
        self.own_keys: list[str] = []
        self._open: list[str] = []
        self._next = _VALUE
        self._in_string = self._in_word = self._is_escaped = False
        self._key: list[str] | None = None  # of the outermost object, while it is being read
        self._num_seen = 0
        self._object_start = 0

    def push(self, text: str) -> int | None:
        """Scans ``text``; the number of its characters that are of the value, where it ends in them, else None."""
        i = 0
        while i < len(text) and not self.has_failed:
            if self._in_string:
                i = self._go_on_in_string(text, i)
                continue
            pattern = _WORD if self._in_word else _SPACE
            behind = pattern.match(text, i)
            i = i if behind is None else behind.end()
            if i == len(text):
                break
            self._in_word = False
            self._take(text[i], self._num_seen + i)
            i += not self._in_word
            if not self._open and not self.has_failed:
                self._num_seen += i
                return i
        self._num_seen += len(text)
        return None

    def _go_on_in_string(self, text: str, start: int) -> int:
        if self._is_escaped:
            self._is_escaped = False
            end = start + 1
            self._note_key(text[start:end])
            return end
        plain = _IN_STRING.match(text, start)
        end = start if plain is None else plain.end()
        self._note_key(text[start:end])
        if end == len(text):
            return end
        if text[end] == "\\":
            self._is_escaped = True
            self._note_key("\\")
        else:
            self._in_string = False
            self._end_key()
        return end + 1

    def _note_key(self, text: str) -> None:
        if self._key is None:
            return
        self._key.append(text)
        if self._keys is not None:
            key = "".join(self._key)  # a beginning of a known one, so it is short
            self.has_failed = not any(known.startswith(key) for known in self._keys)

    def _end_key(self) -> None:
        if self._key is None:
            return
        key = "".join(self._key)
        self._key = None
        self.own_keys.append(key)
        if self._keys is not None and key not in self._keys:
            self.has_failed = True

    def _take(self, character: str, place: int) -> None:
        """One character that is no space and in no string."""
        match character:
            case "{" | "[" if self._next in (_VALUE, _FIRST_ITEM):
                self._enter(character, place)
            case "}" | "]" if self._open and _CLOSES[self._open[-1]] == character and self._may_close():
                self._leave(place)
            case '"' if self._next in (_VALUE, _FIRST_ITEM, _FIRST_KEY, _KEY):
                self._begin_string()
            case ":" if self._next == _COLON:
                self._next = _VALUE
            case "," if self._next == _BEHIND:
                self._next = _KEY if self._open[-1] == "{" else _VALUE
            case _ if self._next in (_VALUE, _FIRST_ITEM) and _WORD.fullmatch(character):
                self._in_word, self._next = True, _BEHIND
            case _:
                self.has_failed = True

    def _may_close(self) -> bool:
        return self._next in (_BEHIND, _FIRST_KEY, _FIRST_ITEM)

    def _begin_string(self) -> None:
        self._in_string = True
        if self._next in (_FIRST_KEY, _KEY):
            self._next = _COLON
            self._key = [] if self._open == ["{"] else None
        else:
            self._next = _BEHIND

    def _enter(self, bracket: str, place: int) -> None:
        if bracket == "{" and self._open in ([], ["["]):
            self._object_start = place
        self._open.append(bracket)
        self._next = _FIRST_KEY if bracket == "{" else _FIRST_ITEM

    def _leave(self, place: int) -> None:
        was_object = self._open.pop() == "{"
        if was_object and self._open in ([], ["["]):
            self.objects.append((self._object_start, place + 1))
        self._next = _BEHIND
