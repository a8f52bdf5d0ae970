"""What the server counts, in the form of Prometheus.

Histograms are of calls that came to their end; what the engine counts itself is read from it at each look.
"""

from collections.abc import Iterator
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jaxinfer.outputs import RequestOutput
from jaxinfer.scheduler import Scheduler

EarlyEnd = Literal["abort", "timeout", "shutdown", "error"]
"""Why a request ends early: its client left, its time was over, the server ends, the engine has failed."""

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_SECONDS_PER_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)


class ServerMetrics:
    """Of one server.

    Args:
        scheduler: of its engine.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(scheduler))

        def histogram(name: str, of: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"jaxinfer_{name}_seconds", of, buckets=buckets, registry=self._registry)

        self._ttft = histogram("time_to_first_token", "From a request's arrival to its first token.")
        self._tpot = histogram("time_per_output_token", "Per token after the first.", _SECONDS_PER_TOKEN)
        self._queue_time = histogram("request_queue_time", "From a request's arrival to its first step.")
        self._e2e = histogram("e2e_request_latency", "From a request's arrival to its end.")
        self._ended = Counter(
            "jaxinfer_requests", "Sequences that ended, by why.", ["finish_reason"], registry=self._registry
        )
        self._refused = Counter("jaxinfer_requests_refused", "Calls refused: full queue.", registry=self._registry)

    def observe(self, output: RequestOutput) -> None:
        """Count a request that has ended."""
        for sequence in output.outputs:
            self._ended.labels(sequence.finish_reason).inc()
        times = output.metrics
        if times is None:
            return
        if times.ttft is not None:
            self._ttft.observe(times.ttft)
        if times.tpot is not None:
            self._tpot.observe(times.tpot)
        if times.first_scheduled_time is not None:
            self._queue_time.observe(times.first_scheduled_time - times.arrival_time)
        if times.finished_time is not None:
            self._e2e.observe(times.finished_time - times.arrival_time)

    def count_early_end(self, reason: EarlyEnd, num_sequences: int) -> None:
        """Count the sequences of a request that was ended before its end."""
        self._ended.labels(reason).inc(num_sequences)

    def count_refused(self) -> None:
        """Count a call that found the queue full."""
        self._refused.inc()

    def exposition(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    """What the engine's thread counts, read without stopping it: each number is right by itself."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        scheduler = self._scheduler
        yield GaugeMetricFamily("jaxinfer_requests_running", "Sequences in the batch.", scheduler.num_running)
        yield GaugeMetricFamily("jaxinfer_requests_waiting", "Sequences that wait.", scheduler.num_waiting)
        usage = GaugeMetricFamily(
            "jaxinfer_kv_cache_usage_ratio", "Pages that requests hold, of all, by cache group.", labels=["group"]
        )
        for group, (free, pages) in enumerate(zip(scheduler.num_free_pages, scheduler.num_pages, strict=True)):
            usage.add_metric([str(group)], 1 - free / pages)
        yield usage
        counters = scheduler.counters
        for name, of, count in (
            ("preemptions", "Times that a request's pages were taken from it.", counters.num_preemptions),
            ("prompt_tokens", "Tokens of admitted prompts.", counters.num_prompt_tokens),
            ("prefix_cache_hit_tokens", "Those of them that were in the cache.", counters.num_cached_tokens),
            ("evicted_pages", "Pages of shared prefixes that were given up.", counters.num_evicted_pages),
            ("generation_tokens", "Tokens that were generated.", counters.num_generated_tokens),
        ):
            yield CounterMetricFamily(f"jaxinfer_{name}", of, count)
