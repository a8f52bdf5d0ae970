"""What a caller asks of one request: how to draw its tokens and when to stop.

Values are checked when the object is made, so that a bad one never reaches the engine loop.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: dividing float32 logits by less overflows."""

_MAX_SEED = 2**64 - 1
_MAX_FLOAT32 = (2 - 2**-23) * 2**127


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How one request's tokens are drawn and where it ends; names and meanings as in vLLM.

    Attributes:
        temperature: divides the logits, in [0, 3.4e38]; below 1e-5 the most likely token is taken.
        top_k: keep the k most likely tokens (and those that tie with the last); 0 or -1 keeps all.
        top_p: keep the smallest set of tokens whose probability reaches this, in (0, 1].
        min_p: drop tokens less likely than this times the most likely one, in [0, 1].
        seed: 64 bits; the same seed gives the same tokens whatever else runs (in float32; in bfloat16 the logits depend
            a little on the size of the batch). None: the engine gives one.
        max_tokens: tokens to generate, >= 0; 0 processes the prompt only; None goes on to the model's length.
        min_tokens: neither EOS nor a stop token can be drawn before this many tokens.
        ignore_eos: the model's EOS tokens do not end the request.
        stop_token_ids: further tokens that end the request. The one that did is in ``token_ids`` but not in the text.

    Raises:
        ValueError: a value is out of range; the message names it and what is allowed.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: Iterable[int] = ()

    def __post_init__(self) -> None:
        # Tuple and plain ints: what the caller does with its own list later must not change a running request.
        object.__setattr__(self, "stop_token_ids", self._checked_stop_token_ids())
        self._check_number("temperature", "a number in [0, 3.4e38]", lambda t: 0 <= t <= _MAX_FLOAT32)
        self._check_number("top_p", "a number in (0, 1]", lambda p: 0 < p <= 1)
        self._check_number("min_p", "a number in [0, 1]", lambda p: 0 <= p <= 1)
        self._check_int("top_k", self.top_k, "a whole number >= -1 (0 and -1 keep all)", -1)
        self._check_int("min_tokens", self.min_tokens, "a whole number >= 0", 0)
        if not isinstance(self.ignore_eos, bool):
            raise ValueError(f"ignore_eos is {self.ignore_eos!r}; it must be True or False")
        if self.max_tokens is not None:
            self._check_int("max_tokens", self.max_tokens, "a whole number >= 0, or None", 0)
            if self.min_tokens > self.max_tokens:
                raise ValueError(f"min_tokens is {self.min_tokens}, above max_tokens, which is {self.max_tokens}")
        if self.seed is not None:
            self._check_int("seed", self.seed, "a whole number in [0, 2**64), or None", 0)
            if self.seed > _MAX_SEED:
                raise ValueError(f"seed is {self.seed}; it must be a whole number in [0, 2**64), or None")

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken instead of a draw."""
        return self.temperature < GREEDY_BELOW

    def _checked_stop_token_ids(self) -> tuple[int, ...]:
        if isinstance(self.stop_token_ids, str | bytes) or not isinstance(self.stop_token_ids, Iterable):
            raise ValueError(f"stop_token_ids is {self.stop_token_ids!r}; it must be a list of token ids")
        token_ids = tuple(self.stop_token_ids)
        for token_id in token_ids:
            self._check_int("stop_token_ids[...]", token_id, "a token id >= 0", 0)
        return tuple(map(int, token_ids))

    def _check_number(self, name: str, allowed: str, ok: Callable[[Any], bool]) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, Real) or not ok(value):  # NaN fails every comparison
            raise ValueError(f"{name} is {value!r}; it must be {allowed}")

    @staticmethod
    def _check_int(name: str, value: object, allowed: str, lowest: int) -> None:
        # Integral, and Real above, since numbers often come from NumPy.
        if isinstance(value, bool) or not isinstance(value, Integral) or value < lowest:
            raise ValueError(f"{name} is {value!r}; it must be {allowed}")
