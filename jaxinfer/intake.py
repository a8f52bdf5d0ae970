"""From what a caller asks for to what the engine serves: every value checked against the model, every limit resolved.

All that can be wrong with a request is found here, before anything of it is queued.
"""

import random
import time
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from functools import lru_cache

from jaxinfer.answer import Answer
from jaxinfer.bad_words import bad_word_ids
from jaxinfer.config import EngineConfig
from jaxinfer.detokenizer import Detokenizer, IncrementalDetokenizer
from jaxinfer.output_filter import OutputFilter, OutputFilterFactory
from jaxinfer.request import Request
from jaxinfer.sampling_params import SamplingParams
from jaxinfer.seeds import sequence_seed
from jaxinfer.stop_strings import StopStrings
from jaxinfer.structured_outputs.grammar import GrammarMaker
from jaxinfer.token_masks import TokenMask
from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.tokenizers.spelling import text_of_token
from jaxinfer.tool_calls import ToolCallDetokenizer, ToolCallFormat
from jaxinfer.tracked import TrackedRequest
from jaxinfer.value_checks import check_token_ids, checked_items, shown, shown_error

_SEED_BITS = 64
_TEXTS_KEPT = 65_536
"""Texts of tokens to remember, which log-probabilities name again and again."""


class Intake:
    """Makes requests for one engine; the arguments are the engine's.

    Args:
        config: its limits.
        vocab_size: V of the model.
        tokenizer: or None.
        eos_token_ids: what ends a text.
        cache_identity: what all keys and values depend on besides their tokens.
        output_filter: makes the guard of each sequence, or None.
        check_fits: raises ValueError for a request that can never run to its end.
    """

    def __init__(
        self,
        config: EngineConfig,
        vocab_size: int,
        *,
        tokenizer: Tokenizer | None,
        eos_token_ids: Sequence[int],
        cache_identity: tuple[str, ...],
        output_filter: OutputFilterFactory | None,
        check_fits: Callable[[Request], None],
    ) -> None:
        self._config, self._vocab_size, self._tokenizer = config, vocab_size, tokenizer
        # An end token that the model has no row for can never be drawn.
        self._eos_token_ids = tuple(token_id for token_id in eos_token_ids if token_id < vocab_size)
        self._cache_identity, self._output_filter, self._check_fits = cache_identity, output_filter, check_fits
        self._seeds = random.Random(config.seed)
        self._grammars = GrammarMaker(tokenizer, vocab_size, self._eos_token_ids)
        self._spell = lru_cache(_TEXTS_KEPT)(self._text_of_token)

    def take(
        self,
        request_id: str,
        prompt: str | Sequence[int],
        params: SamplingParams,
        *,
        prompt_text: str | None,
        cache_salt: str | None,
        tool_format: ToolCallFormat | None,
        stream: bool,
    ) -> TrackedRequest:
        """The request with its sequences, for ``Engine.add_request``, whose arguments and errors these are."""
        arrival_time = time.perf_counter()
        if not isinstance(params, SamplingParams):
            raise ValueError(f"the sampling parameters are {shown(params)}; they must be a SamplingParams")
        if not isinstance(cache_salt, str | None):
            raise ValueError(f"cache_salt is {shown(cache_salt)}; it must be text")
        if stream and params.num_sequences > params.n:
            raise ValueError(
                f"best_of is {params.num_sequences} and n {params.n}: which are the best is known at the end, "
                "so they cannot be streamed"
            )
        token_ids = self._prompt_ids(self._encode(prompt) if isinstance(prompt, str) else prompt)
        stop_token_ids = self._stop_token_ids(params)
        first = self._first_request(request_id, token_ids, params, stop_token_ids, cache_salt)
        self._check_fits(first)  # before the work that takes longer the longer the prompt is
        mask = TokenMask(
            self._vocab_size,
            allowed_token_ids=params.allowed_token_ids,
            bad_words=self._bad_words(params),
            stop_token_ids=stop_token_ids,
            min_tokens=params.min_tokens,
        )
        grammar = self._grammars.make(params.structured_outputs)
        stops = StopStrings(params.stop or (), include=params.include_stop_str_in_output, min_tokens=params.min_tokens)
        detokenizers = self._detokenizers(token_ids, params, stops, tool_format)
        masks = [mask if grammar is None else mask.held_to(grammar.fresh()) for _ in detokenizers]
        requests = self._requests(first)
        watches_text = bool(params.stop) or self._output_filter is not None
        answers = [
            Answer(request, detokenizer, mask, watches_text=watches_text, spell=self._spell)
            for request, detokenizer, mask in zip(requests, detokenizers, masks, strict=True)
        ]
        return TrackedRequest(
            request_id,
            prompt=prompt if isinstance(prompt, str) else prompt_text,
            shown_prompt_ids=list(token_ids),
            answers=answers,
            stream=stream,
            arrival_time=arrival_time,
        )

    def _stop_token_ids(self, params: SamplingParams) -> frozenset[int]:
        """What ends a request of these parameters, whose other ids are looked at here as well."""
        for name in ("stop_token_ids", "allowed_token_ids", "logit_bias"):
            check_token_ids(name, getattr(params, name) or (), self._vocab_size)
        asked = frozenset(params.stop_token_ids or ())
        return asked if params.ignore_eos else asked | frozenset(self._eos_token_ids)

    def _first_request(
        self,
        request_id: str,
        token_ids: list[int],
        params: SamplingParams,
        stop_token_ids: frozenset[int],
        cache_salt: str | None,
    ) -> Request:
        """That of the first sequence, whose seed is not drawn yet."""
        room = max(self._config.max_model_len - len(token_ids), 0)
        return Request(
            request_id=request_id,
            prompt_token_ids=token_ids,
            params=params,
            stop_token_ids=stop_token_ids,
            max_new_tokens=room if params.max_tokens is None else min(params.max_tokens, room),
            seed=params.seed or 0,
            cache_identity=self._cache_identity + (() if cache_salt is None else (f"salt={cache_salt}",)),
        )

    def _requests(self, first: Request) -> list[Request]:
        """One for each sequence. The first computes the prompt's log-probabilities, for all."""
        params = first.params
        if params.seed is None:  # drawn after all that may refuse it: a refused request changes no other's seed
            first.seed = self._seeds.getrandbits(_SEED_BITS)
        if params.num_sequences == 1:
            return [first]
        # Made once: to make parameters is to check them, which for a long list takes time, and to copy them.
        others = params if params.prompt_logprobs is None else replace(params, prompt_logprobs=None)
        return [_sequence(first, index, others if index else params) for index in range(params.num_sequences)]

    def _detokenizers(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        stops: StopStrings,
        tool_format: ToolCallFormat | None,
    ) -> Sequence[Detokenizer | None]:
        """One for each sequence."""
        if self._tokenizer is None:
            for name in ("stop", "bad_words"):
                if getattr(params, name):
                    raise ValueError(f"{name} is text and the model has no tokenizer; give token ids")
            return [None] * params.num_sequences
        tokenizer, guard = self._tokenizer, self._guard()
        first: Detokenizer = (
            IncrementalDetokenizer(tokenizer, prompt_token_ids, stops=stops, output_filter=guard)
            if tool_format is None
            else ToolCallDetokenizer(tokenizer, prompt_token_ids, tool_format, stops=stops, output_filter=guard)
        )
        return [first, *(first.fresh(self._guard()) for _ in range(1, params.num_sequences))]

    def _guard(self) -> OutputFilter | None:
        if self._output_filter is None:
            return None
        try:
            return self._output_filter()
        except Exception as error:
            raise ValueError(f"no output filter can be made: {shown_error(error)}") from error

    def _bad_words(self, params: SamplingParams) -> tuple[tuple[int, ...], ...]:
        if not params.bad_words or self._tokenizer is None:
            return ()
        words = bad_word_ids(self._tokenizer, params.bad_words)
        for word in words:
            check_token_ids("bad_words", word, self._vocab_size)
        return words

    def _text_of_token(self, token_id: int) -> str | None:
        return None if self._tokenizer is None else text_of_token(self._tokenizer, token_id)

    def _encode(self, text: str) -> list[int]:
        if self._tokenizer is None:
            raise ValueError("the prompt is text and the model has no tokenizer; give token ids")
        if not text:
            raise ValueError("the prompt is empty; at least one token is needed")
        return self._tokenizer.encode(text)

    def _prompt_ids(self, token_ids: Iterable[int]) -> list[int]:
        """The ids as a fresh list of plain ints, each inside the model's vocabulary."""
        allowed = "a list of token ids"
        if isinstance(token_ids, Set):  # which has no order
            raise ValueError(f"prompt is {shown(token_ids)}; it must be {allowed}")
        checked = checked_items("prompt", token_ids, allowed)
        check_token_ids("prompt", checked, self._vocab_size)
        return list(map(int, checked))


def _sequence(request: Request, index: int, params: SamplingParams) -> Request:
    """One of a request's several sequences."""
    return replace(
        request,
        request_id=f"{request.request_id}/{index}",
        params=params,
        seed=sequence_seed(request.seed, index),
        page_tables=[],
        output_token_ids=[],
        page_hashes=[],
    )
