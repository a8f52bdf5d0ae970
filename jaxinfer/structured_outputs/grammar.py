"""Forms of answers as masks of tokens, through ``llguidance``.

A form that cannot be held is refused when the request is made; whatever goes wrong later is an error of that request.
Nowhere is a mask left out: no answer is of another form than was asked for.
"""

import reprlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache

import numpy as np
from llguidance import LLMatcher

from jaxinfer.structured_outputs.compilation import check_matcher, compiled, failure
from jaxinfer.structured_outputs.lark_source import lark_source
from jaxinfer.structured_outputs.params import StructuredOutputsParams
from jaxinfer.structured_outputs.trials import Trials
from jaxinfer.structured_outputs.vocabulary import GrammarVocabulary
from jaxinfer.token_masks import Grammar, TokenBits, num_words
from jaxinfer.tokenizers.protocol import Tokenizer

_FORMS_KEPT = 32
"""Forms to remember, compiled or refused: programs ask for the same one again and again."""


class GrammarTemplate:
    """A form that was compiled once, for all sequences that are held to it."""

    def __init__(self, matcher: LLMatcher, vocabulary: GrammarVocabulary) -> None:
        self._matcher, self._vocabulary = matcher, vocabulary

    def fresh(self) -> Grammar:
        """One for a new sequence, at its beginning."""
        return _MatchedText(self._matcher.deep_copy(), self._vocabulary)


class GrammarMaker:
    """Makes the forms that requests of one engine ask for.

    Args:
        tokenizer: None for a model without one, whose text nobody knows.
        vocab_size: V of the model.
        eos_token_ids: all that end a text, each below ``vocab_size``.
    """

    def __init__(self, tokenizer: Tokenizer | None, vocab_size: int, eos_token_ids: Sequence[int]) -> None:
        self._tokenizer, self._vocab_size, self._eos_token_ids = tokenizer, vocab_size, eos_token_ids
        self._trials = Trials(vocab_size)
        self._compiled = lru_cache(_FORMS_KEPT)(self._compile)

    def make(self, params: StructuredOutputsParams | None) -> GrammarTemplate | None:
        """The form of ``params``; None for None.

        The first one takes a second or two more, to read the vocabulary and to start a process that tries forms.

        Raises:
            ValueError: the form is wrong, allows no text, has what is not supported, or is too large; the message names
                it, shortened, and says why. Or the model has no tokenizer.
        """
        if params is None:
            return None
        with _refused_by_name(params):
            if self._tokenizer is None:
                raise ValueError("the model has no tokenizer, so the texts of its tokens are not known")
            compiled_form = self._compiled(lark_source(params))
            if isinstance(compiled_form, str):
                raise ValueError(compiled_form)
        return compiled_form

    def _compile(self, source: str) -> GrammarTemplate | str:
        """Or why it is refused, which is worth remembering as well."""
        refusal = self._trials.refusal(source)
        if refusal is not None:
            return refusal
        try:
            return GrammarTemplate(compiled(source, self._vocabulary.tokens), self._vocabulary)
        except ValueError as error:  # no token of the model goes on, say
            return str(error)

    @cached_property
    def _vocabulary(self) -> GrammarVocabulary:
        assert self._tokenizer is not None, "a model without a tokenizer is refused before"
        return GrammarVocabulary(self._tokenizer, self._vocab_size, self._eos_token_ids)


class _MatchedText:
    """How far one sequence has come in its form; see ``Grammar``."""

    def __init__(self, matcher: LLMatcher, vocabulary: GrammarVocabulary) -> None:
        self._matcher, self._vocabulary = matcher, vocabulary
        self._has_ended = False

    @property
    def is_done(self) -> bool:
        return self._has_ended or self._matcher.is_stopped()

    def allowed(self) -> TokenBits:
        """See ``Grammar``. Raises ValueError where the library has reached one of its limits."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), "<u4")
        check_matcher(self._matcher)
        # The library allows its own EOS behind the vocabulary, and what a grammar names by id.
        allowed = bits[: num_words(self._vocabulary.size)] & self._vocabulary.text
        return allowed | self._vocabulary.ends if self._matcher.is_accepting() else allowed

    def accept(self, token_id: int) -> None:
        """See ``Grammar``. An EOS that does not end the sequence (``ignore_eos``) completes the form."""
        if token_id in self._vocabulary.eos_token_ids:
            is_allowed = self._matcher.is_accepting()
            self._has_ended = is_allowed
        else:
            is_allowed = self._vocabulary.has_text(token_id) and self._matcher.consume_token(token_id)
        if not is_allowed:
            reason = f": {failure(self._matcher)}" if self._matcher.is_error() else ""
            raise ValueError(f"token {token_id} cannot come next in the form that the request asks for{reason}")


def check_form(params: StructuredOutputsParams, vocab_size: int) -> None:
    """Refuse a form that no model of so many tokens can be held to, as ``GrammarMaker.make``, before one is there."""
    with _refused_by_name(params):
        refusal = Trials(vocab_size).refusal(lark_source(params))
        if refusal is not None:
            raise ValueError(refusal)


@contextmanager
def _refused_by_name(params: StructuredOutputsParams) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        form = f"{params.kind} {reprlib.repr(getattr(params, params.kind))}"
        raise ValueError(f"structured_outputs with {form} cannot be held: {error}") from error
