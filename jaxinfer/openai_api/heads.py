"""What all answers have in common: a name, a time, the model, and how many tokens it took."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from pydantic import BaseModel

from jaxinfer.outputs import RequestOutput

_FINGERPRINT = f"jaxinfer-{version('jaxinfer')}"


@dataclass(frozen=True)
class AnswerHead:
    """What an answer begins with.

    Attributes:
        id: its name.
        created: when it was begun, in seconds since 1970.
        model: the model's name.
        system_fingerprint: what the same seed gives the same answer from: our version.
    """

    id: str
    created: int
    model: str
    system_fingerprint: str = _FINGERPRINT

    @classmethod
    def new(cls, prefix: str, model: str) -> "AnswerHead":
        """One that no other answer has."""
        return cls(f"{prefix}-{secrets.token_hex(16)}", int(time.time()), model)


class PromptTokensDetails(BaseModel):
    """Attributes: tokens of the prompts that the cache had."""

    cached_tokens: int


class Usage(BaseModel):
    """Tokens of a call, as OpenAI's API counts them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


def total_usage(outputs: Sequence[RequestOutput]) -> Usage:
    """Of all prompts of a call together."""
    usages = [output.usage for output in outputs if output.usage is not None]
    prompt, drawn = sum(usage.prompt_tokens for usage in usages), sum(usage.completion_tokens for usage in usages)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=drawn,
        total_tokens=prompt + drawn,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=sum(usage.cached_tokens for usage in usages)),
    )
