"""Clients that leave, whenever they do: what they asked for ends within a second, and the others notice nothing."""

import asyncio
import gc
import random
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxinfer.server.service import Call
from tests.served_fakes import FakeModel, asked, expected, post, token_ids
from tests.servers import RunningServer, serving


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    model = FakeModel(max_num_seqs=8)
    model.seconds_per_step = 0.002
    with serving(model, max_queue=400) as running:
        yield running


async def connected(server: RunningServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))


async def stay(server: RunningServer, rng: random.Random) -> None:
    """A client that waits for its answer, which is what the model would have said to it alone."""
    body = asked(
        [rng.randrange(1000) for _ in range(rng.randint(1, 40))], rng.randint(1, 30), stream=rng.random() < 0.5
    )
    reader, writer = await connected(server)
    writer.write(post(body))
    head, _, content = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b" 200 " in head.split(b"\r\n")[0]
    assert token_ids(content) == expected(body)


async def leave(server: RunningServer, rng: random.Random) -> None:
    """A client that leaves: in the middle of its request, at once, after a while, or when it has read something."""
    body = asked([rng.randrange(1000) for _ in range(rng.randint(1, 40))], 2000, stream=rng.random() < 0.5)
    content = post(body)
    reader, writer = await connected(server)
    when = rng.choice(["in the request", "at once", "later", "half", "after some"])
    writer.write(content[: rng.randrange(len(content))] if when == "in the request" else content)
    await writer.drain()
    if when == "later":
        await asyncio.sleep(rng.random() * 0.3)
    if when == "after some" and body["stream"]:
        await reader.read(300)
    if when == "half":  # it says that it sends no more, as some do that still read: it is taken for a client that left
        writer.write_eof()
        await reader.read()
    elif rng.random() < 0.5:
        writer.transport.abort()
    writer.close()


async def crowd(server: RunningServer, num_clients: int, rng: random.Random) -> None:
    clients = [stay] * (num_clients // 2) + [leave] * (num_clients // 2)
    rng.shuffle(clients)
    await asyncio.gather(*(client(server, random.Random(rng.random())) for client in clients))


def memory() -> int:
    """Bytes that the process has in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("num_clients", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_half_of_the_clients_leave_and_nothing_of_theirs_stays(server, num_clients):
    rng, levels = random.Random(8), []
    for _ in range(4):
        asyncio.run(crowd(server, num_clients, rng))
        server.llm.wait_until_idle()
        levels.append(memory())
    assert server.service._num_sequences == 0
    assert server.service._calls == {}
    assert not [thing for thing in gc.get_objects() if isinstance(thing, Call) and thing.num_sequences]
    assert max(levels[1:]) - levels[0] < 4 * 2**20, levels  # the first round warms up


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_is_noticed_within_a_second(server, stream):
    async def leave_early() -> None:
        reader, writer = await connected(server)
        writer.write(post(asked([1, 2, 3], 2000, stream=stream, n=4)))
        while server.llm.engine.scheduler.num_running < 4:
            await asyncio.sleep(0.001)
        if stream:
            await reader.readuntil(b"data: ")
        writer.close()

    before = time.monotonic()
    asyncio.run(asyncio.wait_for(leave_early(), 5))
    server.llm.wait_until_idle()
    assert time.monotonic() - before < 2000 * server.llm.seconds_per_step, "it ended of itself"
