"""Stop strings: found across tokens, and held back while they may be starting.

What is found depends on the text alone and not on how tokens cut it, so that a streamed answer, a batched one and one
that was tokenized in another way end at the same place.
"""

from collections import deque
from collections.abc import Sequence


class StopStrings:
    """The stop strings of one request, made ready once for all its sequences.

    It is the automaton of Aho and Corasick ("Efficient string matching", 1975): a tree of all beginnings, in which each
    node also knows the longest shorter beginning that its own text ends with. So a character costs the same however
    many strings there are, and however long.

    Args:
        strings: none of them empty; the order does not matter.
        include: the text ends behind the string that was found, and not before it.
        min_tokens: the text of so many tokens at the start is part of no stop string.
    """

    def __init__(self, strings: Sequence[str], *, include: bool = False, min_tokens: int = 0) -> None:
        self.include, self.min_tokens = include, min_tokens
        self._next: list[dict[str, int]] = [{}]
        self._shorter = [0]
        self._depth = [0]
        self._ends: list[str | None] = [None]
        for string in strings:
            self._ends[self._add(string)] = string
        self._link()

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return len(self._next) == 1

    def step(self, node: int, character: str) -> int:
        """The node of the longest beginning that the text ends with, one character on; the start is node 0."""
        while character not in self._next[node]:
            if node == 0:
                return 0
            node = self._shorter[node]
        return self._next[node][character]

    def depth(self, node: int) -> int:
        """How many characters at the end of the text may be the beginning of a stop string."""
        return self._depth[node]

    def found(self, node: int) -> str | None:
        """The longest stop string that the text ends with, or None."""
        return self._ends[node]

    def _add(self, string: str) -> int:
        node = 0
        for character in string:
            if character not in self._next[node]:
                self._next[node][character] = len(self._next)
                self._next.append({})
                self._shorter.append(0)
                self._depth.append(self._depth[node] + 1)
                self._ends.append(None)
            node = self._next[node][character]
        return node

    def _link(self) -> None:
        """Nearest to the root first, since a node's own shorter beginning is found from its parent's."""
        nodes = deque(self._next[0].values())
        while nodes:
            node = nodes.popleft()
            shorter = self._shorter[node]
            self._ends[node] = self._ends[node] or self._ends[shorter]
            for character, child in self._next[node].items():
                self._shorter[child] = self.step(shorter, character)
                nodes.append(child)


class StopSearch:
    """Looks for a request's stop strings in the text of one sequence.

    Of all that are in the text the one that ends first is found, and of those that end there the longest. Text is held
    back only while it may be the beginning of one.

    Attributes:
        found: the stop string at which the text has ended; None while it has not.
    """

    def __init__(self, stops: StopStrings) -> None:
        self.found: str | None = None
        self._stops = stops
        self._num_tokens = 0
        self._node = 0
        self._held = ""

    def push(self, text: str) -> str:
        """What is certain to be before any stop string, now that one more token has brought ``text``."""
        self._num_tokens += 1
        return self._searched(text)

    def settle(self, rest: str) -> str:
        """All that was held back, with the ``rest`` of what the last token brings; nothing later reads on from it."""
        text = self._searched(rest) + self._held
        self._held, self._node = "", 0
        return text

    def _searched(self, text: str) -> str:
        stops = self._stops
        if self.found is not None:
            return ""
        if stops.is_empty or self._num_tokens <= stops.min_tokens:
            return text
        node = self._node
        for end, character in enumerate(text, start=1):
            node = stops.step(node, character)
            self.found = stops.found(node)
            if self.found is not None:
                whole, self._held = self._held + text[:end], ""
                return whole if stops.include else whole[: len(whole) - len(self.found)]
        whole, self._node = self._held + text, node
        settled = len(whole) - stops.depth(node)
        self._held = whole[settled:]
        return whole[:settled]
