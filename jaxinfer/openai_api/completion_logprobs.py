"""Log-probabilities of the tokens of a completion, in the older of the two forms of OpenAI's API: four lists."""

from collections.abc import Mapping, Sequence
from copy import copy

from pydantic import BaseModel

from jaxinfer.detokenizer import OutputStream
from jaxinfer.logprobs import Logprob
from jaxinfer.openai_api.json_logprob import json_logprob
from jaxinfer.tokenizers.protocol import Tokenizer
from jaxinfer.tokenizers.spelling import text_of_token


class CompletionLogprobs(BaseModel):
    """What the model's raw distribution says of the tokens of a text; for each of them an entry in each list.

    Attributes:
        tokens: its text in the middle of a text, a special token's spelling, or ``token_id:7`` where the model has no
            tokenizer.
        token_logprobs: natural logarithm of its probability; None for the first of a prompt, before which is nothing.
        top_logprobs: the same of the most likely tokens and itself, by text: of equal texts, of the likeliest.
        text_offset: where it begins in the choice's text, in characters.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TokenPlaces:
    """Where tokens begin in the text of a completion, to be asked for one after another.

    Args:
        tokenizer: None for a model without one, whose text is empty.
        prompt_token_ids: the prompt.
        prompt_text: where the text begins with the prompt, the prompt; else "".
    """

    def __init__(self, tokenizer: Tokenizer | None, prompt_token_ids: Sequence[int], prompt_text: str) -> None:
        self._tokenizer, self._prompt_token_ids, self._prompt_text = tokenizer, prompt_token_ids, prompt_text
        self._stream = None if tokenizer is None else OutputStream(tokenizer, prompt_token_ids)
        self._end = len(prompt_text)

    def fork(self) -> "TokenPlaces":
        """Of another completion of the same prompt; to be asked for before the first token."""
        other = copy(self)
        other._stream = None if self._stream is None else self._stream.fork()
        return other

    def of_prompt(self) -> list[int]:
        """Of the prompt's tokens."""
        if self._tokenizer is None:
            return [0] * len(self._prompt_token_ids)
        stream, end, places = OutputStream(self._tokenizer), 0, []
        for token_id in self._prompt_token_ids:
            places.append(min(end, len(self._prompt_text)))
            piece = stream.push(token_id)
            # A special token has no text, but may be spelled in the prompt.
            spelled = piece or self._tokenizer.token_text(token_id)
            if piece or self._prompt_text.startswith(spelled, end):
                end += len(spelled)
        return places

    def next(self, token_id: int) -> int:
        """Of the next token of the output; of one that is cut off, where it would begin."""
        place = self._end
        if self._stream is not None:
            self._end += len(self._stream.push(token_id))
        return place


def completion_logprobs(
    tokenizer: Tokenizer | None,
    token_ids: Sequence[int],
    told: Sequence[Mapping[int, Logprob] | None],
    places: Sequence[int],
) -> CompletionLogprobs:
    """The four lists.

    Args:
        tokenizer: or None.
        token_ids: the tokens.
        told: of each by token id what is known of it and of the most likely ones; None where nothing is.
        places: where they begin.
    """

    def text(token_id: int) -> str:
        return f"token_id:{token_id}" if tokenizer is None else text_of_token(tokenizer, token_id)

    def top(of_token: Mapping[int, Logprob]) -> dict[str, float]:
        likeliest_last = sorted(of_token.items(), key=lambda item: item[1].logprob)
        by_text = {text(token_id): json_logprob(logprob) for token_id, logprob in likeliest_last}
        return dict(reversed(by_text.items()))

    pairs = list(zip(token_ids, told, strict=True))
    return CompletionLogprobs(
        tokens=[text(token_id) for token_id in token_ids],
        token_logprobs=[None if each is None else json_logprob(each[i]) for i, each in pairs],
        top_logprobs=[None if each is None else top(each) for _, each in pairs],
        text_offset=list(places),
    )
