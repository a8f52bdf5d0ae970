"""What the records of a run come to."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxinfer.bench.goodput import meets
from jaxinfer.bench.load import LoadRun
from jaxinfer.bench.record import RequestRecord

_MILLISECONDS = 1000.0
_TOO_MANY = "429"


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Of one latency over the requests that were answered, in milliseconds.

    Attributes:
        mean: of all.
        p50: the median; a percentile lies on the straight line between the two values next to it (Hyndman and Fan's
            definition 7, NumPy's "linear").
        p90: likewise.
        p95: likewise.
        p99: likewise.
        max: the longest.
    """

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Spread | None":
        """Of these; None where there are none."""
        if not seconds:
            return None
        values = np.asarray(seconds) * _MILLISECONDS
        p50, p90, p95, p99 = np.percentile(values, [50, 90, 95, 99]).tolist()
        return cls(mean=float(values.mean()), p50=p50, p90=p90, p95=p95, p99=p99, max=float(values.max()))


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One run. Throughputs are per second of ``seconds``; latencies are those of ``RequestRecord``.

    Attributes:
        rate: requests per second that were asked for; inf for all at once.
        arrival_rate: those that arrived: gaps by the time from the first sending to the last; None where that is 0.
        num_requests: requests that were sent.
        num_answered: that were answered whole.
        num_refused: that met a full queue: status 429.
        num_failed: that ended otherwise.
        num_unfinished: that were under way when the run was stopped.
        errors: how many of each kind of bad end, 429 among them.
        first_message: what was said of the first of them.
        seconds: the run took.
        requests_per_second: answered.
        input_tokens: of the prompts of answered requests; None where the server does not count them.
        output_tokens: of their answers.
        input_tokens_per_second: as it says.
        output_tokens_per_second: as it says.
        tokens_counted_by_server: else output tokens are events with text, which may have several tokens.
        goodput: answered requests per second that met the targets; None without targets.
        ttft: of each answered request.
        tpot: of each answered request of two tokens or more.
        itl: of all answered requests, all their gaps together.
        e2e: of each answered request.
        max_lateness_ms: from when a request was due until it was sent, at worst.
        client_cpu_share: of one core.
    """

    rate: float
    arrival_rate: float | None
    num_requests: int
    num_answered: int
    num_refused: int
    num_failed: int
    num_unfinished: int
    errors: dict[str, int]
    first_message: str
    seconds: float
    requests_per_second: float
    input_tokens: int | None
    output_tokens: int
    input_tokens_per_second: float | None
    output_tokens_per_second: float
    tokens_counted_by_server: bool
    goodput: float | None
    ttft: Spread | None
    tpot: Spread | None
    itl: Spread | None
    e2e: Spread | None
    max_lateness_ms: float
    client_cpu_share: float


def summarize(run: LoadRun, rate: float, targets: Mapping[str, float]) -> Summary:
    """Of a run at this rate, with the targets of ``parse_targets``."""
    records, seconds = run.records, run.seconds
    good = [record for record in records if record.ended is not None and record.error is None]
    bad = [record for record in records if record.error is not None]
    errors = Counter(str(record.error) for record in bad)
    counts = [record.prompt_tokens for record in good if record.prompt_tokens is not None]
    input_tokens = sum(counts) if len(counts) == len(good) else None
    output_tokens = sum(record.num_output_tokens for record in good)
    return Summary(
        rate=rate,
        arrival_rate=_arrival_rate(records),
        num_requests=len(records),
        num_answered=len(good),
        num_refused=errors[_TOO_MANY],
        num_failed=len(bad) - errors[_TOO_MANY],
        num_unfinished=len(records) - len(good) - len(bad),
        errors=dict(errors.most_common()),
        first_message=bad[0].message if bad else "",
        seconds=seconds,
        requests_per_second=len(good) / seconds,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        input_tokens_per_second=None if input_tokens is None else input_tokens / seconds,
        output_tokens_per_second=output_tokens / seconds,
        tokens_counted_by_server=all(record.completion_tokens is not None for record in good),
        goodput=sum(meets(record, targets) for record in good) / seconds if targets else None,
        ttft=Spread.of([record.ttft for record in good]),
        tpot=Spread.of([record.tpot for record in good if record.tpot is not None]),
        itl=Spread.of([gap for record in good for gap in record.itls]),
        e2e=Spread.of([record.e2e for record in good]),
        max_lateness_ms=max((record.sent - record.due for record in records), default=0.0) * _MILLISECONDS,
        client_cpu_share=run.cpu_share,
    )


def _arrival_rate(records: Sequence[RequestRecord]) -> float | None:
    sent = [record.sent for record in records]
    span = max(sent) - min(sent) if sent else 0.0
    return (len(sent) - 1) / span if span else None
