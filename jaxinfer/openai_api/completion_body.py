"""The body of a call of ``/v1/completions``."""

from typing import Annotated, Any

from pydantic import Field, field_validator

from jaxinfer.openai_api.errors import invalid
from jaxinfer.openai_api.field_errors import ListOf, allowed
from jaxinfer.openai_api.sampling_fields import SamplingFields
from jaxinfer.prompts import Prompt
from jaxinfer.sampling_params import MAX_LOGPROBS, SamplingParams

_MAX_TOKENS = 16

PromptField = Annotated[
    str | ListOf[str] | ListOf[int] | ListOf[ListOf[int]],
    allowed("text, a list of texts, a list of token ids, or a list of such lists"),
]


class CompletionBody(SamplingFields):
    """Goes on from a text, or from each of several, given as text or as token ids.

    With ``echo``, ``logprobs`` and ``max_tokens: 0`` it tells how likely the prompt itself is. ``return_token_ids`` is
    vLLM's.
    """

    prompt: PromptField
    max_tokens: int | None = Field(default=None, ge=0, description=f"{_MAX_TOKENS} where it is left out.")
    best_of: int | None = Field(default=None, description="Not to be streamed where it is more than n.")
    echo: bool | None = Field(default=None, description="Begin the text with the prompt.")
    logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    suffix: str | None = Field(default=None, description="There is no model here that fills in a middle.")
    return_token_ids: bool | None = None

    @field_validator("suffix")
    @classmethod
    def _refuse_suffix(cls, suffix: str | None) -> str | None:
        if suffix:
            raise ValueError("it must be left out: the models go on from a prompt, and fill in no middle")
        return suffix

    @field_validator("prompt")
    @classmethod
    def _refuse_nothing(cls, prompt: Any) -> Any:
        if not prompt or (isinstance(prompt, list) and not all(part or part == 0 for part in prompt)):
            raise ValueError("it must not be empty, and have no empty part")
        return prompt

    @property
    def tells_tokens(self) -> bool:
        """Whether the answer tells of its tokens, besides their text."""
        return bool(self.return_token_ids) or self.logprobs is not None

    def prompts(self) -> list[Prompt]:
        """One or several, for the engine."""
        several = isinstance(self.prompt, list) and not isinstance(self.prompt[0], int)
        return [self._prompt(part) for part in (self.prompt if several else [self.prompt])]

    def _prompt(self, part: Any) -> Prompt:
        if isinstance(part, str):
            return {"prompt": part, "cache_salt": self.cache_salt}
        return {"prompt_token_ids": part, "cache_salt": self.cache_salt}

    def params(self) -> SamplingParams:
        """As ``checked_params``."""
        if self.stream and (self.best_of or 1) > (self.n or 1):
            message = f"best_of is {self.best_of} and n {self.n or 1}: which are the best is known at the end"
            raise invalid(f"{message}, so they cannot be streamed", "best_of")
        return self.checked_params(
            max_tokens=_MAX_TOKENS if self.max_tokens is None else self.max_tokens,
            best_of=self.best_of,
            logprobs=self.logprobs,
            prompt_logprobs=self.logprobs if self.echo else None,
        )
