"""The picture has the numbers of the summaries."""

import math

from jaxinfer.bench.load import LoadRun
from jaxinfer.bench.record import RequestRecord
from jaxinfer.bench.serve_plot import serve_plot
from jaxinfer.bench.summary import summarize


def one_request(rate, ttft, tpot):
    record = RequestRecord(due=0, sent=0, text_times=[ttft], ended=ttft + tpot, completion_tokens=2)
    return summarize(LoadRun(records=[record], seconds=1), rate, {})


def test_lines_are_percentiles_and_a_run_without_answers_is_a_gap():
    nothing = summarize(LoadRun(records=[], seconds=1), 4.0, {})
    figure = serve_plot([one_request(2.0, 0.5, 0.25), nothing, one_request(math.inf, 2.0, 1.0)])
    for panel, values in zip(figure.axes, ([500, 2000], [250, 1000]), strict=True):
        assert [line.get_label() for line in panel.lines] == ["p50", "p90", "p99"]
        for line in panel.lines:
            first, gap, last = line.get_ydata()
            assert math.isnan(gap) and [first, last] == values
        assert [tick.get_text() for tick in panel.get_xticklabels()] == ["2", "4", "inf"]
