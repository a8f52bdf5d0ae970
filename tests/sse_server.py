"""A made-up server of OpenAI's API: it says what a test tells it to say, when the test says, and counts who asks."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Answer:
    """Pieces of a body, each with the seconds before it; the connection is closed after the last."""

    pieces: Sequence[tuple[float, bytes]]
    status: int = 200
    content_type: str = "text/event-stream"


@dataclass
class FakeServer:
    """What it saw: path, headers (names in small letters) and body of each call, and how many came at once."""

    url: str = ""
    calls: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    num_open: int = 0
    most_open: int = 0


def event(content: Any) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def text_event(text: str, finish_reason: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "text": text, "finish_reason": finish_reason}]})


def usage_event(prompt_tokens: int, completion_tokens: int) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}})


DONE = b"data: [DONE]\n\n"


def json_answer(content: Any, status: int = 200) -> Answer:
    return Answer([(0, json.dumps(content).encode())], status, "application/json")


def refusal(status: int, message: str) -> Answer:
    return json_answer({"error": {"message": message}}, status)


@contextmanager
def fake_server(answer: Callable[[str, Any], Answer]) -> Iterator[FakeServer]:
    """On a free port, in a thread; ``answer`` is given path and body of each call."""
    server, started, over = FakeServer(), threading.Event(), threading.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.num_open += 1
        server.most_open = max(server.most_open, server.num_open)
        try:
            call = await _read_call(reader)
            server.calls.append(call)
            await _write(writer, answer(call[0], call[2]))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has left, or the test is over
        finally:
            server.num_open -= 1
            writer.close()

    async def main() -> None:
        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        started.set()
        while not over.is_set():
            await asyncio.sleep(0.01)
        listening.close()

    thread = threading.Thread(target=asyncio.run, args=[main()])
    thread.start()
    assert started.wait(10)
    try:
        yield server
    finally:
        over.set()
        thread.join(10)


async def _write(writer: asyncio.StreamWriter, answer: Answer) -> None:
    writer.write(f"HTTP/1.1 {answer.status} X\r\ncontent-type: {answer.content_type}\r\n".encode())
    writer.write(b"connection: close\r\n\r\n")
    for delay, piece in answer.pieces:
        await asyncio.sleep(delay)
        writer.write(piece)
        await writer.drain()


async def _read_call(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], Any]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return first.split(" ")[1], headers, json.loads(body) if body else None
