"""From what a caller asks for to what the engine serves: every value checked against the model, every limit resolved.

All that can be wrong with a request is found here, before anything of it is queued.
"""

import random
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from numbers import Integral

from jaxinfer.answer import Answer
from jaxinfer.bad_words import bad_word_ids
from jaxinfer.config import EngineConfig
from jaxinfer.detokenizer import Detokenizer, IncrementalDetokenizer
from jaxinfer.output_filter import OutputFilterFactory
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
from jaxinfer.value_checks import shown

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
    ) -> None:
        self._config, self._vocab_size, self._tokenizer = config, vocab_size, tokenizer
        # An end token that the model has no row for can never be drawn.
        self._eos_token_ids = tuple(token_id for token_id in eos_token_ids if token_id < vocab_size)
        self._cache_identity, self._output_filter = cache_identity, output_filter
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
        token_ids = self._checked_ids("prompt", self._encode(prompt) if isinstance(prompt, str) else prompt)
        request = self._request(request_id, token_ids, params, cache_salt)
        mask = TokenMask(
            self._vocab_size,
            allowed_token_ids=params.allowed_token_ids,
            bad_words=self._bad_words(params),
            stop_token_ids=request.stop_token_ids,
            min_tokens=params.min_tokens,
        )
        grammar = self._grammars.make(params.structured_outputs)
        stops = StopStrings(params.stop or (), include=params.include_stop_str_in_output, min_tokens=params.min_tokens)
        answers = [
            Answer(
                request if params.num_sequences == 1 else _sequence(request, index),
                self._detokenizer(token_ids, params, stops, tool_format),
                mask if grammar is None else mask.held_to(grammar.fresh()),
                watches_text=bool(params.stop) or self._output_filter is not None,
                spell=self._spell,
            )
            for index in range(params.num_sequences)
        ]
        return TrackedRequest(
            request_id,
            prompt=prompt if isinstance(prompt, str) else prompt_text,
            shown_prompt_ids=list(token_ids),
            answers=answers,
            stream=stream,
            arrival_time=arrival_time,
        )

    def _request(
        self, request_id: str, token_ids: list[int], params: SamplingParams, cache_salt: str | None
    ) -> Request:
        stop_token_ids = frozenset(self._checked_ids("stop_token_ids", params.stop_token_ids or ()))
        self._checked_ids("allowed_token_ids", params.allowed_token_ids or ())
        self._checked_ids("logit_bias", list(params.logit_bias or ()))
        room = max(self._config.max_model_len - len(token_ids), 0)
        return Request(
            request_id=request_id,
            prompt_token_ids=token_ids,
            params=params,
            stop_token_ids=stop_token_ids if params.ignore_eos else stop_token_ids | frozenset(self._eos_token_ids),
            max_new_tokens=room if params.max_tokens is None else min(params.max_tokens, room),
            seed=self._seeds.getrandbits(_SEED_BITS) if params.seed is None else int(params.seed),
            cache_identity=self._cache_identity + (() if cache_salt is None else (f"salt={cache_salt}",)),
        )

    def _detokenizer(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        stops: StopStrings,
        tool_format: ToolCallFormat | None,
    ) -> Detokenizer | None:
        if self._tokenizer is None:
            for name in ("stop", "bad_words"):
                if getattr(params, name):
                    raise ValueError(f"{name} is text and the model has no tokenizer; give token ids")
            return None
        guard = None if self._output_filter is None else self._output_filter()
        if tool_format is None:
            return IncrementalDetokenizer(self._tokenizer, prompt_token_ids, stops=stops, output_filter=guard)
        return ToolCallDetokenizer(self._tokenizer, prompt_token_ids, tool_format, stops=stops, output_filter=guard)

    def _bad_words(self, params: SamplingParams) -> tuple[tuple[int, ...], ...]:
        if not params.bad_words or self._tokenizer is None:
            return ()
        words = bad_word_ids(self._tokenizer, params.bad_words)
        for word in words:
            self._checked_ids("bad_words", word)
        return words

    def _text_of_token(self, token_id: int) -> str | None:
        return None if self._tokenizer is None else text_of_token(self._tokenizer, token_id)

    def _encode(self, text: str) -> list[int]:
        if self._tokenizer is None:
            raise ValueError("the prompt is text and the model has no tokenizer; give token ids")
        if not text:
            raise ValueError("the prompt is empty; at least one token is needed")
        return self._tokenizer.encode(text)

    def _checked_ids(self, name: str, token_ids: Iterable[int]) -> list[int]:
        """The ids as a fresh list of plain ints, each inside the model's vocabulary."""
        vocab_size = self._vocab_size
        # A set has no order, and text and bytes are sequences of something else.
        if isinstance(token_ids, str | bytes | Set | Mapping) or not isinstance(token_ids, Iterable):
            raise ValueError(f"{name} is {shown(token_ids)}; it must be a list of token ids")
        try:
            checked = list(token_ids)
        except TypeError as error:  # an array without axes says that it can be iterated, and cannot
            raise ValueError(f"{name} is {shown(token_ids)}; it must be a list of token ids") from error
        for token_id in checked:
            # Integral, since ids often come from NumPy; but True is no token.
            if isinstance(token_id, bool) or not isinstance(token_id, Integral) or not 0 <= token_id < vocab_size:
                raise ValueError(f"{name} has {shown(token_id)}; a token id is a whole number in [0, {vocab_size})")
        return list(map(int, checked))


def _sequence(request: Request, index: int) -> Request:
    """One of a request's several sequences. The first computes the prompt's log-probabilities, for all."""
    params = request.params if index == 0 else replace(request.params, prompt_logprobs=None)
    return replace(
        request,
        request_id=f"{request.request_id}/{index}",
        params=params,
        seed=sequence_seed(request.seed, index),
        page_tables=[],
        output_token_ids=[],
        page_hashes=[],
    )
