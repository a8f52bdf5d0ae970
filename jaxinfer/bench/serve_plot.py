"""A picture of TTFT and TPOT against the rate of requests."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jaxinfer.bench.summary import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PERCENTILES = ("p50", "p90", "p99")
_PANELS = (("ttft", "time to first token"), ("tpot", "time per output token"))
_INCHES = (9.0, 3.8)


def check_plot(file: Path) -> None:
    """Raises ValueError where no plot can be written into the file, before there is a measurement to lose."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise ValueError("a plot needs matplotlib: pip install 'jaxinfer[plot]'") from error
    kinds = FigureCanvasBase.get_supported_filetypes()
    if file.suffix.removeprefix(".").lower() not in kinds:
        raise ValueError(f"the plot is {str(file)!r}; its name must end in one of {', '.join(sorted(kinds))}")


def serve_plot(summaries: Sequence[Summary]) -> "Figure":
    """Two panels of percentiles in milliseconds; the rates, which may be inf, stand at equal distances."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    axes = figure.subplots(1, 2)
    for panel, (name, title) in zip(axes, _PANELS, strict=True):
        for percentile in _PERCENTILES:
            spreads = [getattr(summary, name) for summary in summaries]
            values = [math.nan if spread is None else getattr(spread, percentile) for spread in spreads]
            panel.plot(range(len(values)), values, marker="o", label=percentile)
        panel.set_xticks(range(len(summaries)), [f"{summary.rate:g}" for summary in summaries])
        panel.set_xlabel("requests per second")
        panel.set_ylabel(f"{title}, ms")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    axes[0].legend()
    return figure
