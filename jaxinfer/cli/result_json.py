"""One prompt's result as a line of JSON. Every line has the same keys, whatever was asked for and however it ended."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from jaxinfer.cli.json_values import as_json_number
from jaxinfer.logprobs import Logprob
from jaxinfer.outputs import CompletionOutput, RequestMetrics, RequestOutput
from jaxinfer.sampling_params import SamplingParams


def result_json(prompt: str, output: RequestOutput | None, error: str | None, params: SamplingParams) -> str:
    """The line. It is plain ASCII, so that it can be written to any stdout, whatever the text holds.

    ``outputs`` has an object for each sequence; ``text``, ``token_ids`` and ``finish_reason`` are those of the first,
    for whoever asks for one only. A log-probability that is no number of JSON's is null.

    Args:
        prompt: what the user typed.
        output: of its request; None where it was refused before the engine saw it.
        error: why there is no answer, or None.
        params: what was asked for.
    """
    completions = output.outputs if output is not None and output.usage is not None else []  # none where refused
    sequences = [_sequence(completion, params) for completion in completions]
    first = sequences[0] if sequences else {"text": "", "token_ids": [], "finish_reason": "error"}
    return json.dumps(
        {
            "prompt": prompt,
            **{key: first[key] for key in ("text", "token_ids", "finish_reason")},
            "outputs": sequences,
            "prompt_logprobs": _logprobs(output.prompt_logprobs if output else None, params.prompt_logprobs),
            "metrics": _metrics(output.metrics) if output and output.metrics else None,
            "usage": asdict(output.usage) if output and output.usage else None,
            "error": error,
        }
    )


def _sequence(completion: CompletionOutput, params: SamplingParams) -> dict[str, Any]:
    return {
        "text": completion.text,
        "token_ids": completion.token_ids,
        "finish_reason": completion.finish_reason,
        "stop_reason": completion.stop_reason,
        "cumulative_logprob": as_json_number(completion.cumulative_logprob),
        "logprobs": _logprobs(completion.logprobs, params.logprobs),
    }


def _logprobs(
    told: Sequence[Mapping[int, Logprob] | None] | None, num_top: int | None
) -> list[dict[str, Any] | None] | None:
    """For each token what is known of it and of the ``num_top`` most likely; null for the first of a prompt."""
    if told is None or num_top is None:
        return None
    return [None if of_token is None else _logprob(of_token, num_top) for of_token in told]


def _logprob(told: Mapping[int, Logprob], num_top: int) -> dict[str, Any]:
    """The token itself comes first in what is told; it is one of the most likely where there is no other beyond."""
    itself, *others = (_entry(token_id, logprob) for token_id, logprob in told.items())
    top = others if len(told) > num_top else sorted([itself, *others], key=lambda entry: entry["rank"])
    return {**itself, "top": top}


def _entry(token_id: int, logprob: Logprob) -> dict[str, Any]:
    return {
        "token": logprob.decoded_token,
        "id": token_id,
        "logprob": as_json_number(logprob.logprob),
        "rank": logprob.rank,
    }


def _metrics(metrics: RequestMetrics) -> dict[str, float | None]:
    """Seconds: to the first token, for each token after it, and from arrival to end."""
    whole = None if metrics.finished_time is None else metrics.finished_time - metrics.arrival_time
    return {"ttft": metrics.ttft, "tpot": metrics.tpot, "seconds": whole}
