"""From a grammar to a matcher, in the process that tries forms as in the engine's.

``llguidance`` follows references by recursion: a few thousand of them, one inside the other, overflow a stack of 8 MiB,
which ends the process. So it works on a thread with a larger one.
"""

import json
import re
import threading

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

STACK_BYTES = 2**26
"""Of the address space: memory is taken as far as it is used. Seen: at most 8 KiB for each 30 characters."""

_LIMITS = LLParserLimits(
    # A tenth of the library's own limit on the size of regular expressions, which are what takes it minutes.
    initial_lexer_fuel=100_000,
    # Half of its own and two fifths: of the most ambiguous grammars a mask then takes 50 ms, where it took a second.
    max_items_in_row=1000,
    step_max_items=20_000,
)

_MAX_REASON = 300
_DUMPS = re.compile(r"\n( *\d+ \| |<state>|<backtrace>)")
"""Where an error goes on with the source, the parser's state or addresses in the library."""
_PLAIN = {
    "NoExtension": "no token of the model goes on with a text that it allows",
    "panic: removal index": "a name in <> is a special token's, and none is part of a text",
}
"""What some of the library's errors mean."""

_starting = threading.Lock()


def compiled(source: str, tokens: LLTokenizer, stack_bytes: int = STACK_BYTES) -> LLMatcher:
    """A matcher at its beginning, whose first mask has been made once.

    Raises:
        ValueError: the grammar is wrong, allows nothing, has what is not supported, or is too large; says why.
    """
    made = _Compilation(source, tokens)
    with _starting:  # the size counts for all threads that are started
        usual = threading.stack_size(stack_bytes)
        try:
            made.start()
        except RuntimeError as error:  # there is no room for the stack
            raise ValueError(f"no thread could be started to read it: {error}") from error
        finally:
            threading.stack_size(usual)
    made.join()
    if made.matcher is None:
        raise ValueError(made.error)
    return made.matcher


class _Compilation(threading.Thread):
    """A thread of its own, which the process does not wait for at its end."""

    def __init__(self, source: str, tokens: LLTokenizer) -> None:
        super().__init__(name="grammar", daemon=True)
        self._source, self._tokens = source, tokens
        self.matcher: LLMatcher | None = None
        self.error = ""

    def run(self) -> None:
        try:
            self.matcher = self._compile()
        except ValueError as error:
            self.error = str(error)
        except BaseException as error:  # such as a panic of the library, which is no Exception
            self.error = f"llguidance failed: {_reason(str(error))}"

    def _compile(self) -> LLMatcher:
        # As JSON, since a grammar that begins with a brace would be taken for it.
        grammar = json.dumps({"grammars": [{"lark_grammar": self._source}]})
        matcher = LLMatcher(self._tokens, grammar, log_level=0, limits=_LIMITS)
        check_matcher(matcher)
        matcher.compute_bitmask()  # that nothing is allowed shows only here
        check_matcher(matcher)
        return matcher


def check_matcher(matcher: LLMatcher) -> None:
    """Raises ValueError with its ``failure`` if the matcher has failed, as it does without raising anything."""
    if matcher.is_error():
        raise ValueError(failure(matcher))


def failure(matcher: LLMatcher) -> str:
    """Why a matcher that has failed did."""
    return _reason(matcher.get_error())


def _reason(error: str) -> str:
    """What a person can read of it, its middle left out where it is long."""
    for sign, meaning in _PLAIN.items():
        if error.startswith(sign):
            return meaning
    text = " ".join(_DUMPS.split(error, maxsplit=1)[0].split())
    if len(text) <= _MAX_REASON:
        return text
    return f"{text[: _MAX_REASON // 2]} ... {text[-_MAX_REASON // 2 :]}"
