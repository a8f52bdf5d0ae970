"""Requests go out at their times, whatever the server does with those before."""

import asyncio
import time

import numpy as np
import pytest

from jaxinfer.bench.load import Load
from jaxinfer.bench.target import Target
from jaxinfer.bench.workload import Ask
from tests.sse_server import DONE, Answer, fake_server, text_event, usage_event

SLACK = 3.0
"""Seconds that a busy machine may add to what takes none."""


def answer_after(seconds):
    return lambda path, body: Answer([(seconds, text_event("a", "stop")), (0, usage_event(3, 1)), (0, DONE)])


def run(server, arrivals, stop_after=None, **settings):
    """The run, stopped where ``stop_after`` of its requests have ended."""
    target = Target(root=server.url, endpoint="completions", model="m")
    asks = [Ask(f"prompt {number}", 4) for number in range(len(arrivals))]
    load = Load(target=target, asks=asks, arrivals=np.asarray(arrivals, np.float64), **settings)

    async def main():
        stop = asyncio.Event()

        def on_end(done, total):
            assert total == len(arrivals)
            if done == stop_after:
                stop.set()

        return await load.run(stop, on_end)

    return asyncio.run(main())


def test_a_slow_server_does_not_slow_arrivals():
    """One at a time, as a loop that waits for each answer, it would take 20 x 0.3 s."""
    arrivals = np.arange(20) * 0.01
    with fake_server(answer_after(0.3)) as server:
        found = run(server, arrivals)
    assert [record.error for record in found.records] == [None] * 20
    for record, due in zip(found.records, arrivals, strict=True):
        assert record.due == due <= record.sent < due + SLACK
        assert 0.3 <= record.ttft < 0.3 + SLACK
    assert server.most_open > 10
    assert 0.49 <= found.seconds < 0.49 + SLACK
    assert {body["prompt"] for _, _, body in server.calls} == {f"prompt {number}" for number in range(20)}


def test_latencies_over_a_real_connection():
    """Never less than what the server waited; how much more is the machine's affair."""
    waits = [0.1, 0.05, 0.15]
    events = [(waits[0], text_event("a")), (waits[1], text_event("b")), (waits[2], text_event("c", "length"))]
    with fake_server(lambda path, body: Answer([*events, (0, usage_event(3, 3)), (0, DONE)])) as server:
        [record] = run(server, [0.0]).records
    assert waits[0] <= record.ttft < waits[0] + SLACK
    assert sum(waits) <= record.e2e < sum(waits) + SLACK
    assert sum(record.itls) == pytest.approx(record.e2e - record.ttft) == pytest.approx(2 * record.tpot)


def test_a_limit_of_concurrency_holds():
    with fake_server(answer_after(0.1)) as server:
        found = run(server, [0.0] * 6, max_concurrency=2)
    assert server.most_open == 2
    assert max(record.sent for record in found.records) >= 0.2


def test_a_request_has_its_time():
    def answer(path, body):
        return answer_after(30.0 if body["prompt"] == "prompt 0" else 0.0)(path, body)

    with fake_server(answer) as server:
        found = run(server, [0.0, 0.0], timeout=0.2)
    late, good = found.records
    assert (late.error, late.message) == ("timed out", "not answered within 0.2 s")
    assert 0.2 <= late.e2e < 0.2 + SLACK
    assert good.error is None


def test_what_is_done_when_it_is_stopped():
    """One request is answered, one is under way and one is not sent; the server is left."""

    def answer(path, body):
        return answer_after(0.1 if body["prompt"] == "prompt 0" else 30.0)(path, body)

    with fake_server(answer) as server:
        found = run(server, [0.0, 0.0, 30.0], stop_after=1)
    assert found.stopped
    assert [(record.ended is None, record.error) for record in found.records] == [(False, None), (True, None)]
    assert 0.1 <= found.seconds < 10


def test_a_server_that_is_not_there():
    with fake_server(answer_after(0)) as server:
        pass
    begin = time.perf_counter()
    found = run(server, [0.0, 0.0])
    assert [record.error for record in found.records] == ["ConnectError"] * 2
    assert time.perf_counter() - begin < 5
