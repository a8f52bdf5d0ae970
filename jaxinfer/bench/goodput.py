"""Targets of latency, and whether a request meets them: what goodput counts (DistServe, https://arxiv.org/abs/2401.09670)."""

import re
from collections.abc import Mapping, Sequence

from jaxinfer.bench.record import RequestRecord
from jaxinfer.value_checks import shown

_METRICS = ("ttft", "tpot", "e2e")


def parse_targets(words: Sequence[str]) -> dict[str, float]:
    """Milliseconds by metric, from words such as ``ttft:500``; one text may have several.

    Raises:
        ValueError: a word that is no target, or two of one metric.
    """
    targets: dict[str, float] = {}
    for word in re.split(r"[\s,]+", " ".join(words).strip()) if words else []:
        metric, _, value = word.partition(":")
        if metric not in _METRICS or not re.fullmatch(r"\d+(\.\d+)?", value, re.ASCII) or not float(value):
            raise ValueError(
                f"a target is {shown(word)}; it must be METRIC:MILLISECONDS with one of {', '.join(_METRICS)}"
            )
        if metric in targets:
            raise ValueError(f"there are two targets of {metric}")
        targets[metric] = float(value)
    return targets


def meets(record: RequestRecord, targets: Mapping[str, float]) -> bool:
    """Whether an answered request was as fast as each target asks; without a second token there is no TPOT to miss."""
    milliseconds = {"ttft": record.ttft, "tpot": record.tpot or 0.0, "e2e": record.e2e}
    return all(milliseconds[name] * 1000 <= most for name, most in targets.items())
