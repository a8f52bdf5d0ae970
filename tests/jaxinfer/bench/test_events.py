"""Events come whole, wherever the bytes were cut."""

import pytest

from jaxinfer.bench.events import EventReader

STREAM = (
    b": a comment\n\n"
    b"data: one\n\n"
    b"event: ping\nid: 3\n\n"
    b"data:two\r\n\r\n"
    b"data:  three\nid: 5\ndata: lines\n\n"
    b'retry: 10\ndata: {"text": "\xc3\xa4"}\n\n'
    b"data: never ended\n"
)
EVENTS = [b"one", b"two", b" three\nlines", b'{"text": "\xc3\xa4"}']


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(STREAM)])
def test_events_of_a_stream_cut_anywhere(size):
    reader = EventReader()
    pieces = [STREAM[i : i + size] for i in range(0, len(STREAM), size)]
    assert [event for piece in pieces for event in reader.feed(piece)] == EVENTS


def test_an_event_is_given_with_the_byte_that_ends_it():
    reader = EventReader()
    assert reader.feed(b"data: a\n") == []
    assert reader.feed(b"\ndata: b\n\ndata: c") == [b"a", b"b"]
    assert reader.feed(b"\n\n") == [b"c"]
