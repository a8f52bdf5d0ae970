"""How likely the model finds a text that is given: log-probabilities of its tokens, and their perplexity.

A text longer than a window is read as others do it, so that numbers can be compared: in windows that begin every
``stride`` tokens, each a text of its own, of which those tokens count that no window before it held (the guide of
transformers to the perplexity of fixed-length models, https://huggingface.co/docs/transformers/perplexity). A window is
a request for the log-probabilities of its prompt and runs in the same batch as all others. What the engine tells of a
token takes some hundred bytes, so only a few windows are under way at a time, and of each only an array is kept.
"""

import math
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32

from jaxinfer.outputs import RequestOutput
from jaxinfer.prompts import Prompt, as_mapping
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.value_checks import check_int

if TYPE_CHECKING:  # as in `jaxinfer.safe_prompt`
    from jaxinfer.tokenizers.protocol import Tokenizer

RunRequests = Callable[[Sequence[Prompt], SamplingParams], Iterator[tuple[int, RequestOutput]]]
"""Runs a request for each prompt and gives (index of the prompt, output) as they end."""

_PARAMS = SamplingParams(max_tokens=0, prompt_logprobs=0)
_USUAL_CHUNK, _MOST_SEQS = 256, 32
_TOKENS_AT_ONCE, _WINDOWS_AT_ONCE = 65_536, 1024
"""Handed to the engine together; it fills its steps over windows, so only the last step of so many is not full."""


@dataclass(frozen=True, eq=False)
class TextScore:
    """What the model says of one text of T tokens.

    Attributes:
        token_ids: the text as the model saw it, its BOS included; empty for one that was refused.
        logprobs: for each token the natural logarithm of its probability after those before it in its window; NaN for
            one that is not scored: the first of the text and, with a stride as long as the window, of each window.
        num_scored: tokens that are scored.
        num_windows: windows that were read for them.
        log_likelihood: the sum of the log-probabilities of the scored tokens.
        error: why the text was not scored, or None.
    """

    token_ids: list[int]
    logprobs: Float32[np.ndarray, "T"]
    num_scored: int
    num_windows: int
    log_likelihood: float
    error: str | None = None

    @property
    def perplexity(self) -> float:
        """As ``perplexity_of``."""
        return perplexity_of(self.log_likelihood, self.num_scored)


def perplexity_of(log_likelihood: float, num_scored: int) -> float:
    """exp of minus the mean log-probability of the scored tokens; NaN where there are none."""
    if num_scored == 0:
        return math.nan
    try:
        return math.exp(-log_likelihood / num_scored)
    except OverflowError:  # beyond float64, where the model is no model of this text
        return math.inf


@dataclass(frozen=True)
class Window:
    """The tokens ``begin`` to ``end`` - 1 of a text, of which those from ``first_scored`` on are scored."""

    begin: int
    first_scored: int
    end: int


def resolve_windows(window: int | None, stride: int | None, max_model_len: int) -> tuple[int, int]:
    """Length and stride of the windows: as asked for, or the longest that there is, and no token read twice.

    Raises:
        ValueError: the window is not in [2, max_model_len], or the stride not in [1, window].
    """
    length = max_model_len if window is None else window
    check_int("window", length, f"a whole number in [2, {max_model_len}], which is max_model_len", 2, max_model_len)
    every = length if stride is None else stride
    check_int("stride", every, f"a whole number in [1, {length}], which is the window", 1, length)
    return int(length), int(every)


def seqs_for_windows(window: int) -> int:
    """Windows that a step may hold a part of, for an engine that only reads windows.

    No step reads more tokens than ``max_chunk_tokens``, so more windows than these take would only wait; and fewer
    programs are compiled, and less memory taken, than for as many sequences as others need.
    """
    return min(_USUAL_CHUNK // window + 2, _MOST_SEQS)


def windows(num_tokens: int, window: int, stride: int) -> Iterator[Window]:
    """The windows of a text, but for those that have nothing to score; the first that holds its end is the last."""
    num_held = 0
    for begin in range(0, num_tokens, stride):
        end = min(begin + window, num_tokens)
        first_scored = max(num_held, begin + 1)  # nothing foretells the first token of a window
        if first_scored < end:
            yield Window(begin, first_scored, end)
        num_held = end


def score_texts(
    prompts: Sequence[Prompt],
    run: RunRequests,
    tokenizer: "Tokenizer | None",
    *,
    window: int,
    stride: int,
    on_window: Callable[[int, int], None] | None = None,
) -> list[TextScore]:
    """A score for each prompt, for ``LLM.score``, whose arguments these are, the windows resolved."""
    texts = [_Text.of(prompt, tokenizer, window, stride) for prompt in prompts]
    num_windows, num_done = sum(text.num_windows for text in texts), 0
    for batch in _batches((text, part) for text in texts for part in windows(len(text.token_ids), window, stride)):
        for index, output in run([text.prompt(part) for text, part in batch], _PARAMS):
            text, part = batch[index]
            text.take(part, output)
            num_done += 1
            if on_window is not None:
                on_window(num_done, num_windows)
    return [text.score() for text in texts]


@dataclass(eq=False)
class _Text:
    """A text on its way: its ids and what is known of them. A refused one has no ids, and so no windows."""

    token_ids: list[Any]
    cache_salt: str | None = None
    num_windows: int = 0
    num_scored: int = 0
    log_likelihood: float = 0.0
    error: str | None = None
    logprobs: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.logprobs = np.full(len(self.token_ids), np.nan, np.float32)

    @classmethod
    def of(cls, prompt: Prompt, tokenizer: "Tokenizer | None", window: int, stride: int) -> "_Text":
        try:
            given = as_mapping(prompt)
            token_ids = _token_ids(given, tokenizer)
        except ValueError as error:
            return cls([], error=str(error))
        num_windows = sum(1 for _ in windows(len(token_ids), window, stride))
        return cls(token_ids, given.get("cache_salt"), num_windows)

    def prompt(self, part: Window) -> Prompt:
        return {"prompt_token_ids": self.token_ids[part.begin : part.end], "cache_salt": self.cache_salt}

    def take(self, part: Window, output: RequestOutput) -> None:
        told = output.prompt_logprobs or []
        if output.error is not None or len(told) < part.end - part.begin:
            self.error = output.error or f"the window from token {part.begin} on was aborted"
            return
        for position in range(part.first_scored, part.end):
            of_token = told[position - part.begin]
            assert of_token is not None, "only the first token of a prompt has no log-probability"
            self.logprobs[position] = of_token[self.token_ids[position]].logprob
        self.num_scored += part.end - part.first_scored
        self.log_likelihood += float(self.logprobs[part.first_scored : part.end].sum(dtype=np.float64))

    def score(self) -> TextScore:
        if self.error is not None:
            return TextScore([], np.empty(0, np.float32), 0, 0, 0.0, self.error)
        token_ids = [*map(int, self.token_ids)]
        return TextScore(token_ids, self.logprobs, self.num_scored, self.num_windows, self.log_likelihood)


def _token_ids(given: Any, tokenizer: "Tokenizer | None") -> list[Any]:
    """The ids of a prompt, of which there are at least two. Whether the model has them the engine finds out."""
    if "messages" in given:
        raise ValueError("a conversation cannot be scored, since its answer is not there yet; give text or token ids")
    if "prompt_token_ids" in given:
        token_ids = given["prompt_token_ids"]
        is_array = isinstance(token_ids, np.ndarray) and token_ids.ndim == 1
        if isinstance(token_ids, str | bytes) or not (isinstance(token_ids, Sequence) or is_array):
            raise ValueError(f"prompt_token_ids is {reprlib.repr(token_ids)}; it must be a list of token ids")
        token_ids = list(token_ids)
    else:
        token_ids = _encode(given["prompt"], tokenizer)
    if len(token_ids) < 2:
        raise ValueError(f"the text has {len(token_ids)} tokens; at least 2 are needed, since the first is not scored")
    return token_ids


def _encode(text: Any, tokenizer: "Tokenizer | None") -> list[int]:
    if not isinstance(text, str):
        raise ValueError(f"prompt is {reprlib.repr(text)}; it must be text")
    if tokenizer is None:
        raise ValueError("the prompt is text and the model has no tokenizer; give token ids")
    if not text:
        raise ValueError("the text is empty; at least two tokens are needed")
    return tokenizer.encode(text)


def _batches(parts: Iterable[tuple[_Text, Window]]) -> Iterator[list[tuple[_Text, Window]]]:
    """Windows by the batch; those of a text that has failed are left out."""
    batch, num_tokens = [], 0
    for text, part in parts:
        if text.error is not None:
            continue
        batch.append((text, part))
        num_tokens += part.end - part.begin
        if num_tokens >= _TOKENS_AT_ONCE or len(batch) == _WINDOWS_AT_ONCE:
            yield batch
            batch, num_tokens = [], 0
    if batch:
        yield batch
