"""Stop strings: found across tokens, and held back while they may be starting."""

from collections.abc import Sequence


class StopStrings:
    """Placeholder."""

    def __init__(self, strings: Sequence[str], *, include: bool, min_tokens: int) -> None:
        self._strings, self._include, self._min_tokens = strings, include, min_tokens
