"""Log-probabilities of the tokens of a chat's answer, as OpenAI's API tells them."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from jaxinfer.logprobs import Logprob
from jaxinfer.openai_api.json_logprob import json_logprob
from jaxinfer.tokenizers.protocol import Tokenizer


class TokenLogprob(BaseModel):
    """What the model's raw distribution says of one token.

    Attributes:
        token: its text, in which bytes that are no whole character are U+FFFD; a special token's spelling.
        bytes: what it adds to the text, UTF-8 or a part of it; None for a special token, which adds none.
        logprob: natural logarithm of its probability.
    """

    token: str
    bytes: list[int] | None
    logprob: float


class ContentLogprob(TokenLogprob):
    """Of a token of the answer, with the most likely ones in its place, the likeliest first."""

    top_logprobs: list[TokenLogprob]


class ChatLogprobs(BaseModel):
    """Of all tokens of an answer, the one that stopped it and those of its calls included."""

    content: list[ContentLogprob]
    refusal: None = None


class LogprobWriter:
    """Writes them for one call.

    Args:
        tokenizer: of the model; one without cannot chat.
        num_top: how many of the most likely tokens to tell.
    """

    def __init__(self, tokenizer: Tokenizer | None, num_top: int) -> None:
        self._tokenizer, self._num_top = tokenizer, num_top

    def content(self, logprobs: Sequence[Mapping[int, Logprob]]) -> ChatLogprobs:
        """Of tokens one after another, each with itself first, as ``CompletionOutput.logprobs`` has them."""
        return ChatLogprobs(content=list(map(self._of_token, logprobs)))

    def _of_token(self, told: Mapping[int, Logprob]) -> ContentLogprob:
        written = [self._written(token_id, logprob) for token_id, logprob in told.items()]
        # The token itself may be one of the most likely ones or not.
        top = sorted(written, key=lambda token: token.logprob, reverse=True)[: self._num_top]
        return ContentLogprob(**dict(written[0]), top_logprobs=top)

    def _written(self, token_id: int, logprob: Logprob) -> TokenLogprob:
        assert self._tokenizer is not None, "the conversation was refused"
        added = list(self._tokenizer.token_bytes(token_id)) or None
        return TokenLogprob(token=logprob.decoded_token or "", bytes=added, logprob=json_logprob(logprob))
