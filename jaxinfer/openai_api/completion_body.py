"""The body of a call of ``/v1/completions``."""

from typing import Any

from jaxinfer.openai_api.sampling_fields import SamplingFields
from jaxinfer.prompts import Prompt
from jaxinfer.sampling_params import SamplingParams

_DEFAULT_TOKENS = 16
"""OpenAI's own, for completions."""


class CompletionBody(SamplingFields):
    """Goes on from a text, or from each of several, given as text or as token ids."""

    prompt: str | list[str] | list[int] | list[list[int]]
    max_tokens: int | None = None

    def prompts(self) -> list[Prompt]:
        """One or several, for the engine."""
        several = not isinstance(self.prompt, str) and not all(isinstance(part, int) for part in self.prompt)
        return [self._prompt(part) for part in (self.prompt if several else [self.prompt])]

    def _prompt(self, part: Any) -> Prompt:
        if isinstance(part, str):
            return {"prompt": part, "cache_salt": self.cache_salt}
        return {"prompt_token_ids": part, "cache_salt": self.cache_salt}

    def params(self) -> SamplingParams:
        """As ``checked_params``."""
        return self.checked_params(max_tokens=_DEFAULT_TOKENS if self.max_tokens is None else self.max_tokens)
