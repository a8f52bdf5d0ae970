"""One call, with a clock that the made-up server turns: every latency is known to the last digit."""

import asyncio
import json

import httpx
import pytest

from jaxinfer.bench.record import RequestRecord
from jaxinfer.bench.target import Target
from jaxinfer.bench.timed_call import timed_call
from jaxinfer.bench.workload import Ask
from tests.sse_server import DONE, event, text_event, usage_event

SENT = 2.0


class Clock:
    def __init__(self):
        self.now = SENT

    def __call__(self):
        return self.now


class Pieces(httpx.AsyncByteStream):
    """A body whose pieces each take a time; an exception among them is raised."""

    def __init__(self, clock, pieces):
        self._clock, self._pieces = clock, pieces

    async def __aiter__(self):
        for delay, piece in self._pieces:
            self._clock.now += delay
            if isinstance(piece, Exception):
                raise piece
            yield piece


def call(pieces, *, endpoint="completions", status=200, content_type="text/event-stream"):
    """The record of a call that is answered so."""
    clock = Clock()
    target = Target(root="http://server", endpoint=endpoint, model="m")
    record = RequestRecord(due=1.5, sent=clock())

    def respond(request):
        return httpx.Response(status, headers={"content-type": content_type}, stream=Pieces(clock, pieces))

    async def run():
        async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as client:
            await timed_call(client, target, target.request(Ask("p", 5)), record, clock)

    asyncio.run(run())
    return record


def delta_event(delta, finish_reason=None):
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def test_latencies_are_those_of_the_server():
    """Five tokens in four events; the last of them comes with the end, and usage and [DONE] a long time after it."""
    record = call(
        [
            (0.25, text_event("a")),
            (0.5, text_event("b")),
            (0.125, text_event("cd")),
            (1.0, text_event("e", "length")),
            (4.0, usage_event(7, 5)),
            (4.0, DONE),
        ]
    )
    assert record.error is None
    assert (record.ttft, record.itls, record.e2e) == (0.25, [0.5, 0.125, 1.0], 1.875)
    assert record.tpot == (1.875 - 0.25) / 4
    assert (record.prompt_tokens, record.num_output_tokens) == (7, 5)


def test_events_in_one_piece_came_together():
    record = call([(0.25, text_event("a") + text_event("b")), (0.5, text_event("", "stop") + DONE)])
    assert (record.ttft, record.itls, record.e2e) == (0.25, [0.0], 0.75)


def test_without_usage_events_with_text_are_counted():
    record = call([(0.25, text_event("a")), (0.5, text_event("b")), (0.25, text_event("", "stop")), (0.0, DONE)])
    assert (record.completion_tokens, record.prompt_tokens, record.num_output_tokens) == (None, None, 2)
    assert record.tpot == 0.75


def test_an_answer_of_one_token_without_text():
    """As where the model ends at once: the first thing to be seen is the end."""
    record = call([(0.5, text_event("", "stop")), (0.25, usage_event(3, 1)), (0.0, DONE)])
    assert (record.error, record.ttft, record.e2e, record.tpot, record.itls) == (None, 0.5, 0.5, None, [])


@pytest.mark.parametrize("name", ["content", "reasoning_content", "reasoning", "tool_calls"])
def test_of_a_chat_the_role_is_no_text(name):
    record = call(
        [
            (0.25, delta_event({"role": "assistant", "content": ""})),
            (0.5, delta_event({name: "a"})),
            (0.5, delta_event({name: "b"})),
            (0.125, delta_event({}, "stop") + DONE),
        ],
        endpoint="chat",
    )
    assert (record.error, record.ttft, record.itls, record.e2e) == (None, 0.75, [0.5], 1.375)


ERROR = json.dumps({"error": {"message": "no room"}}).encode()


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ({"pieces": [(0.5, ERROR)], "status": 429}, "429", "no room"),
        ({"pieces": [(0.5, b"<html>")], "status": 502}, "502", "<html>"),
        ({"pieces": [(0.5, b"{}")], "content_type": "application/json"}, "no stream", "{}"),
        ({"pieces": [(0.5, text_event("a"))]}, "broken off", "the stream ended without a finish_reason"),
        ({"pieces": [(0.5, b"")]}, "broken off", "the stream ended without a finish_reason"),
        ({"pieces": [(0.5, DONE)]}, "broken off", "the answer has neither text nor a finish_reason"),
        ({"pieces": [(0.25, text_event("a")), (0.25, b"data: " + ERROR + b"\n\n" + DONE)]}, "error event", "no room"),
        ({"pieces": [(0.5, b"data: {\n\n"), (1.0, DONE)]}, "error event", "an event cannot be read: Expecting"),
        ({"pieces": [(0.5, b"data: 3\n\n"), (1.0, DONE)]}, "error event", "an event cannot be read: 'int' object"),
        ({"pieces": [(0.25, text_event("a")), (0.25, httpx.ReadError("reset"))]}, "ReadError", "reset"),
    ],
)
def test_an_answer_that_is_none(answer, error, message):
    record = call(**answer)
    assert (record.error, record.ended) == (error, SENT + 0.5)
    assert record.message.startswith(message)
