"""What a caller asks of one request: how to draw its tokens, what to tell of them, and when to stop.

Values are checked when the object is made, so that a bad one never reaches the engine loop. What only the model can
tell, such as whether a token id is in its vocabulary, is checked when the request is made.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from jaxinfer.structured_outputs.params import StructuredOutputsParams
from jaxinfer.value_checks import (
    all_of_kind,
    check_bool,
    check_int,
    check_ints,
    check_number,
    checked_items,
    shown,
)

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: dividing float32 logits by less overflows."""

MAX_LOGPROBS = 20
"""The most likely tokens of which a request may be told the log-probabilities: as many as OpenAI's API gives."""

_MAX_SEED = 2**64 - 1
_MAX_FLOAT32 = (2 - 2**-23) * 2**127
_MAX_SEQUENCES = 1024
"""More than are drawn for one prompt. The engine does something for each at once: it makes all of them before the next
step, and in a stream it looks through all for what is new."""
_MAX_BIAS = 100.0
_MOST_ID_DIGITS = 20
_MAX_TEXTS = 1000
_MAX_CHARACTERS = 16_384
"""Of a request's stop strings, and of its bad words: to make them ready holds up all requests, and so many for about as
long as a step (docs/sampling.md)."""
_FLOATS = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
_INTS = ("n", "best_of", "top_k", "seed", "logprobs", "prompt_logprobs", "max_tokens", "min_tokens")


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How one request's tokens are drawn and where it ends; names and meanings as in vLLM.

    The order in which they take effect: allowed tokens, bad words, the form of structured outputs and ``min_tokens``
    forbid tokens; ``logit_bias`` is added; repetition, frequency and presence penalties; temperature; top-k, top-p and
    min-p; one draw. What differs from vLLM is listed at the end of docs/sampling.md.

    Attributes:
        n: sequences to generate for the prompt. Sequence 0 is what ``n = 1`` gives.
        best_of: sequences to generate, of which the ``n`` with the highest log-probability per token are given, best
            first (so in OpenAI's API); None: ``n``. More than ``n`` cannot be streamed.
        temperature: divides the logits, in [0, 3.4e38]; below 1e-5 the most likely token is taken.
        top_k: keep the k most likely tokens (and those that tie with the last); 0 or -1 keeps all.
        top_p: keep the smallest set of tokens whose probability reaches this, in (0, 1].
        min_p: drop tokens less likely than this times the most likely one, in [0, 1].
        presence_penalty: taken once from the logit of each token that is in the output so far, in [-2, 2].
        frequency_penalty: taken as often as the token is in the output so far, in [-2, 2].
        repetition_penalty: positive logits of the tokens of prompt and output so far are divided by it, negative ones
            multiplied; in [0.01, 100], and 1 changes nothing.
        logit_bias: by token id what is added to its logit, each in [-100, 100].
        seed: 64 bits; the same seed gives the same tokens whatever else runs (in float32; in bfloat16 the logits depend
            a little on the size of the batch). None: the engine gives one.
        logprobs: for each token of the output tell its log-probability and those of so many of the most likely ones,
            in [0, 20]; None: tell nothing. They are of the raw distribution, that of the model's logits: nothing that
            is said here changes them.
        prompt_logprobs: likewise for the tokens of the prompt, which is then computed whole: no prefix is reused.
        max_tokens: tokens to generate, >= 0; 0 processes the prompt only; None goes on to the model's length.
        min_tokens: neither EOS nor a stop token can be drawn before this many tokens, and a stop string is looked for
            only in what comes after them.
        ignore_eos: the model's EOS tokens do not end the request.
        stop: a text, or several, that end the request once one is in its text. The text ends before it. At most 1,000,
            of 16,384 characters in all.
        include_stop_str_in_output: the text ends behind the stop string. It says nothing of stop tokens.
        stop_token_ids: further tokens that end the request. The one that did is in ``token_ids`` but not in the text.
        bad_words: a text, or several, whose tokens are never drawn one after another, as they are tokenized at the
            beginning of a text and after a space (as vLLM defines it; other ways to spell the same text remain). The
            limits are those of ``stop``.
        allowed_token_ids: no other tokens are drawn, EOS included; None: all are allowed.
        structured_outputs: the form that the text is held to.

    Raises:
        ValueError: a value is out of range; the message names it and what is allowed.
    """

    n: int = 1
    best_of: int | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] | None = field(default=None, hash=False)
    seed: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: str | Sequence[str] | None = ()
    include_stop_str_in_output: bool = False
    stop_token_ids: Iterable[int] | None = ()
    bad_words: str | Sequence[str] | None = ()
    allowed_token_ids: Iterable[int] | None = None
    structured_outputs: StructuredOutputsParams | None = None

    def __post_init__(self) -> None:
        self._check_drawing()
        self._check_ends()
        self._check_sequences()
        # Tuples and plain numbers: what the caller does with its own list later must not change a running request.
        for name in _FLOATS:
            self._set(name, float(getattr(self, name)))
        for name in _INTS:
            value = getattr(self, name)
            self._set(name, None if value is None else int(value))
        self._set("stop", _texts("stop", self.stop))
        self._set("bad_words", _texts("bad_words", self.bad_words))
        self._set("stop_token_ids", _token_ids("stop_token_ids", self.stop_token_ids))
        if self.allowed_token_ids is not None:
            self._set("allowed_token_ids", _token_ids("allowed_token_ids", self.allowed_token_ids))
            if not self.allowed_token_ids:
                raise ValueError("allowed_token_ids is empty; it must have a token id, or be None, which allows all")
        if self.logit_bias is not None:
            self._set("logit_bias", _checked_bias(self.logit_bias))
        if not isinstance(self.structured_outputs, StructuredOutputsParams | None):
            given = shown(self.structured_outputs)
            raise ValueError(f"structured_outputs is {given}; it must be a StructuredOutputsParams, or None")

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken instead of a draw."""
        return self.temperature < GREEDY_BELOW

    @property
    def num_sequences(self) -> int:
        """Sequences that are generated for the prompt, all of ``best_of`` included."""
        return self.n if self.best_of is None else self.best_of

    @property
    def adjusts_logits(self) -> bool:
        """Whether a bias or a penalty changes the logits."""
        penalized = self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1
        return bool(penalized or self.logit_bias)

    @property
    def wants_logprobs(self) -> bool:
        """Whether the log-probability of each drawn token must be known."""
        return self.logprobs is not None or self.num_sequences > self.n

    def _check_drawing(self) -> None:
        check_number("temperature", self.temperature, "a number in [0, 3.4e38]", lambda t: 0 <= t <= _MAX_FLOAT32)
        check_number("top_p", self.top_p, "a number in (0, 1]", lambda p: 0 < p <= 1)
        check_number("min_p", self.min_p, "a number in [0, 1]", lambda p: 0 <= p <= 1)
        check_int("top_k", self.top_k, "a whole number >= -1 (0 and -1 keep all)", -1)
        for name in ("presence_penalty", "frequency_penalty"):
            check_number(name, getattr(self, name), "a number in [-2, 2]", lambda x: -2 <= x <= 2)
        allowed = "a number in [0.01, 100] (1 changes nothing)"
        check_number("repetition_penalty", self.repetition_penalty, allowed, lambda x: 0.01 <= x <= 100)
        if self.seed is not None:
            check_int("seed", self.seed, "a whole number in [0, 2**64), or None", 0, _MAX_SEED)

    def _check_ends(self) -> None:
        check_int("min_tokens", self.min_tokens, "a whole number >= 0", 0)
        check_bool("ignore_eos", self.ignore_eos)
        check_bool("include_stop_str_in_output", self.include_stop_str_in_output)
        if self.max_tokens is not None:
            check_int("max_tokens", self.max_tokens, "a whole number >= 0, or None", 0)
            if self.min_tokens > self.max_tokens:
                given = shown(self.min_tokens)
                raise ValueError(f"min_tokens is {given}, above max_tokens, which is {shown(self.max_tokens)}")

    def _check_sequences(self) -> None:
        check_int("n", self.n, f"a whole number in [1, {_MAX_SEQUENCES}]", 1, _MAX_SEQUENCES)
        if self.best_of is not None:
            allowed = f"a whole number from n, which is {self.n}, to {_MAX_SEQUENCES}, or None"
            check_int("best_of", self.best_of, allowed, self.n, _MAX_SEQUENCES)
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), f"a whole number in [0, {MAX_LOGPROBS}], or None", 0, MAX_LOGPROBS)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def bias_of_json(bias: Mapping[str, float]) -> dict[Any, float]:
    """A ``logit_bias`` whose keys are text, as JSON has them; what is no token id stays, for the check to refuse."""
    return {
        int(key) if key.isascii() and key.isdecimal() and len(key) <= _MOST_ID_DIGITS else key: value
        for key, value in bias.items()
    }


def _texts(name: str, values: str | Sequence[str] | None) -> tuple[str, ...]:
    given = (values,) if isinstance(values, str) else () if values is None else values
    texts = checked_items(name, given, "a text or a list of texts")
    if len(texts) > _MAX_TEXTS:
        raise ValueError(f"{name} has {len(texts)} texts; it must have at most {_MAX_TEXTS}")
    for text in texts:
        if not isinstance(text, str) or not text:
            raise ValueError(f"{name} has {shown(text)}; it must be a text, and not an empty one")
    num_characters = sum(map(len, texts))
    if num_characters > _MAX_CHARACTERS:
        raise ValueError(f"{name} has {num_characters} characters in all; it must have at most {_MAX_CHARACTERS}")
    for text in texts:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError(f"{name} has {shown(text)}; half of a surrogate pair is in no text")
    return texts


def _token_ids(name: str, values: Iterable[int] | None) -> tuple[int, ...]:
    token_ids = checked_items(name, () if values is None else values, "a list of token ids")
    check_ints(f"{name}[...]", token_ids, "a token id >= 0", 0)
    return tuple(map(int, token_ids))


def _checked_bias(logit_bias: Mapping[int, float]) -> dict[int, float]:
    if not isinstance(logit_bias, Mapping):
        raise ValueError(f"logit_bias is {shown(logit_bias)}; it must be a dict from token ids to numbers")
    check_ints("a key of logit_bias", logit_bias.keys(), "a token id >= 0", 0)
    are_numbers = all_of_kind(logit_bias.values(), Real)
    for token_id, bias in logit_bias.items():
        if not are_numbers or not -_MAX_BIAS <= bias <= _MAX_BIAS:
            allowed = f"a number in [-{_MAX_BIAS:g}, {_MAX_BIAS:g}]"
            check_number(f"logit_bias[{shown(token_id)}]", bias, allowed, lambda x: -_MAX_BIAS <= x <= _MAX_BIAS)
    return {int(token_id): float(bias) for token_id, bias in logit_bias.items()}
