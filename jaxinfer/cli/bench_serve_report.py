"""What ``jaxinfer bench serve`` tells: tables and warnings for people, JSON for programs."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from jaxinfer.cli.json_values import as_json_number
from jaxinfer.cli.table import text_table

if TYPE_CHECKING:
    from jaxinfer.bench.summary import Spread, Summary

_LATE_MS = 20.0
"""Lateness of the client that is worth a word: a step of a model takes about as long."""
_BUSY_SHARE = 0.9

_COUNTS = ("rate", "arrived/s", "sent", "answered", "429", "failed", "s", "requests/s", "input tok/s", "output tok/s")
_SPREAD = ("mean", "p50", "p90", "p95", "p99", "max")
_LATENCIES = ("ttft", "tpot", "itl", "e2e")


def as_tables(summaries: Sequence["Summary"], targets: Mapping[str, float]) -> str:
    """A table with a line for each run, and one of its latencies."""
    goodput = ["goodput/s"] if targets else []
    counts = text_table([[*_COUNTS, *goodput], *map(_counts, summaries)])
    rows = [
        [name.upper(), f"{summary.rate:g}", *_spread(getattr(summary, name))]
        for name in _LATENCIES
        for summary in summaries
    ]
    return f"{counts}\n\n{text_table([['ms', 'rate', *_SPREAD], *rows])}"


def _counts(summary: "Summary") -> list[str]:
    return [
        f"{summary.rate:g}",
        _number(summary.arrival_rate, ".2f"),
        str(summary.num_requests),
        str(summary.num_answered),
        str(summary.num_refused),
        str(summary.num_failed),
        f"{summary.seconds:.1f}",
        f"{summary.requests_per_second:.2f}",
        _number(summary.input_tokens_per_second, ",.0f"),
        f"{summary.output_tokens_per_second:,.0f}",
        *([] if summary.goodput is None else [f"{summary.goodput:.2f}"]),
    ]


def _spread(spread: "Spread | None") -> list[str]:
    return [_number(None if spread is None else getattr(spread, name), ",.1f") for name in _SPREAD]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def remarks(summary: "Summary", max_concurrency: int | None) -> Iterator[str]:
    """What a reader of its numbers must know, a line each."""
    at = f"rate {summary.rate:g}: "
    if summary.errors:
        kinds = ", ".join(f"{number} x {kind}" for kind, number in summary.errors.items())
        yield f"{at}{kinds}; the first: {summary.first_message}"
    if summary.num_unfinished:
        yield f"{at}{summary.num_unfinished} requests were under way when it was stopped"
    if summary.num_answered and not summary.tokens_counted_by_server:
        yield f"{at}the server does not count tokens; events with text were counted, which may have several"
    if max_concurrency is None and math.isfinite(summary.rate) and summary.max_lateness_ms > _LATE_MS:
        yield f"{at}this client sent a request {summary.max_lateness_ms:.0f} ms late"
    if summary.client_cpu_share > _BUSY_SHARE:
        yield f"{at}this client took {summary.client_cpu_share:.0%} of a core; it may be what was measured"


def as_json(summaries: Sequence["Summary"], arguments: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    """One object. An infinite rate is the text ``inf``, for JSON has no such number."""
    report = {"environment": environment, "arguments": arguments, "runs": list(map(asdict, summaries))}
    return json.dumps(_writable(report), indent=2) + "\n"


def _writable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _writable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(item) for item in value]
    if isinstance(value, float):
        return "inf" if value == math.inf else as_json_number(value)
    return value
