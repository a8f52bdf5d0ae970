"""The choices of a completion: all that an output has, or what is new in it since the one before.

A whole answer is written by the same code as a stream, as a stream of one piece, so that they cannot differ.
"""

from pydantic import BaseModel

from jaxinfer.logprobs import Logprob
from jaxinfer.openai_api.completion_body import CompletionBody
from jaxinfer.openai_api.completion_logprobs import CompletionLogprobs, TokenPlaces, completion_logprobs
from jaxinfer.outputs import CompletionOutput, RequestOutput
from jaxinfer.tokenizers.protocol import Tokenizer


class CompletionChoice(BaseModel):
    """One text, or what is new of it.

    Attributes:
        index: that of its prompt times n and that among the prompt's.
        text: with ``echo`` it begins with the prompt.
        finish_reason: ``stop``, ``length`` or ``content_filter``; None while it goes on.
        logprobs: of its tokens, with ``echo`` of the prompt's as well.
        stop_reason: the stop string or the stop token of the caller's that ended it.
        token_ids: its tokens, the one that stopped it included, where they were asked for.
        prompt_token_ids: the prompt's, where they were asked for; in a stream only in the first piece.
    """

    index: int
    text: str
    finish_reason: str | None
    logprobs: CompletionLogprobs | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class PromptWriter:
    """Writes the choices of one prompt.

    Args:
        prompt: its index.
        body: what was asked.
        tokenizer: the model's, or None.
        output: the first of its outputs.
    """

    def __init__(self, prompt: int, body: CompletionBody, tokenizer: Tokenizer | None, output: RequestOutput) -> None:
        prompt_text = _prompt_text(output, tokenizer) if body.echo else ""
        # Made once for all its sequences, since it reads the prompt.
        places = TokenPlaces(tokenizer, output.prompt_token_ids, prompt_text) if body.logprobs is not None else None
        first = prompt * len(output.outputs)
        self._writers = [
            _ChoiceWriter(first + i, body, tokenizer, prompt_text, None if places is None else places.fork())
            for i in range(len(output.outputs))
        ]

    def news(self, output: RequestOutput) -> list[CompletionChoice]:
        """What is new in the next output, of each sequence of which anything is."""
        known = output.prompt_logprobs
        if known is not None and len(known) < len(output.prompt_token_ids):
            return []  # another of the sequences computes them still
        pairs = zip(self._writers, output.outputs, strict=True)
        return [writer.write(output, sequence) for writer, sequence in pairs if writer.has_news(sequence)]


def _prompt_text(output: RequestOutput, tokenizer: Tokenizer | None) -> str:
    if output.prompt is not None:
        return output.prompt
    return "" if tokenizer is None else tokenizer.decode(output.prompt_token_ids)


class _ChoiceWriter:
    """Writes one choice, and knows how much of it is written."""

    def __init__(
        self,
        index: int,
        body: CompletionBody,
        tokenizer: Tokenizer | None,
        prompt_text: str,
        places: TokenPlaces | None,
    ) -> None:
        self._index, self._body, self._tokenizer = index, body, tokenizer
        self._prompt_text, self._places = prompt_text, places
        self._has_begun = self._has_ended = False
        self._num_characters = self._num_tokens = 0

    def has_news(self, sequence: CompletionOutput) -> bool:
        """Whether there is anything to write. Tokens are told with their text, unless they are asked for."""
        if self._has_ended:
            return False
        has_text = len(sequence.text) > self._num_characters
        has_tokens = self._body.tells_tokens and len(sequence.token_ids) > self._num_tokens
        return has_text or has_tokens or sequence.finish_reason is not None

    def write(self, output: RequestOutput, sequence: CompletionOutput) -> CompletionChoice:
        """What is new."""
        is_first, self._has_begun = not self._has_begun, True
        text, token_ids = sequence.text[self._num_characters :], sequence.token_ids[self._num_tokens :]
        choice = CompletionChoice(
            index=self._index,
            text=self._prompt_text + text if is_first else text,
            finish_reason=sequence.finish_reason,
            logprobs=None if self._places is None else self._logprobs(self._places, output, sequence, is_first),
            stop_reason=sequence.stop_reason,
            token_ids=token_ids if self._body.return_token_ids else None,
            prompt_token_ids=output.prompt_token_ids if self._body.return_token_ids and is_first else None,
        )
        self._num_characters, self._num_tokens = len(sequence.text), len(sequence.token_ids)
        self._has_ended = sequence.finish_reason is not None
        return choice

    def _logprobs(
        self, places: TokenPlaces, output: RequestOutput, sequence: CompletionOutput, is_first: bool
    ) -> CompletionLogprobs:
        token_ids = sequence.token_ids[self._num_tokens :]
        told: list[dict[int, Logprob] | None] = [*(sequence.logprobs or [])[self._num_tokens :]]
        begins = list(map(places.next, token_ids))
        if is_first and output.prompt_logprobs is not None:
            token_ids = output.prompt_token_ids + token_ids
            told = output.prompt_logprobs + told
            begins = places.of_prompt() + begins
        return completion_logprobs(self._tokenizer, token_ids, told, begins)
