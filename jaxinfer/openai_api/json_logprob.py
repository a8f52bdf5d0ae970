"""A log-probability as JSON can have it."""

from jaxinfer.logprobs import Logprob

_LOWEST = -9999.0
"""What OpenAI's API says of a token that is as good as impossible; JSON has no number for its logarithm."""


def json_logprob(logprob: Logprob) -> float:
    """Its natural logarithm, never minus infinity."""
    return max(logprob.logprob, _LOWEST)
