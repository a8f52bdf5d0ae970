"""Bodies that are wrong in every way, while others are answered: each is refused, and the others notice nothing.

Wrong bodies are made of right ones by changes each of which makes any right body wrong.
"""

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.served_fakes import JSON, FakeModel, asked, expected, token_ids
from tests.servers import RunningServer, serving

NUM_GOOD = 8
RIGHT = {
    "/v1/completions": {
        "prompt": [1, 2, 3],
        "max_tokens": 3,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "n": 2,
        "logit_bias": {"5": 1.5},
        "stop_token_ids": [4],
        "user": "ä",
        "stream": False,
    },
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "hello ä"}],
        "max_tokens": 3,
        "temperature": 0.5,
        "logit_bias": {"5": 1.5},
        "seed": 7,
        "user": "ä",
        "stream": False,
    },
}
NEVER: tuple[Any, ...] = ({"a": {}}, [[[]]], [None], [0.5])
"""What no field of either body may be."""
NUMBERS = ("temperature", "top_p", "seed", "n", "max_tokens")
HUGE = (-(10**400), -(10**30), 1.5e300, -1.5e300)

Body = dict[str, Any]


def encoded(body: Body) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def cut(body: Body, rng: random.Random) -> bytes:
    whole = encoded(body)
    return whole[: rng.randrange(1, len(whole))]


def of_wrong_type(body: Body, rng: random.Random) -> bytes:
    field = rng.choice([name for name in body if name != "user"])
    return encoded(body | {field: rng.choice(NEVER)})


def huge_number(body: Body, rng: random.Random) -> bytes:
    return encoded(body | {rng.choice([name for name in NUMBERS if name in body]): rng.choice(HUGE)})


def no_number(body: Body, rng: random.Random) -> bytes:
    literal = rng.choice([b"NaN", b"Infinity", b"-Infinity", b"1e999", b"0x10", b"01", b"1_0", b"+1", b".5", b"5."])
    return encoded(body | {rng.choice(["temperature", "top_p"]): 123456789}).replace(b"123456789", literal)


def nested(body: Body, rng: random.Random) -> bytes:
    opening, closing = rng.choice([(b"[", b"]"), (b'{"a":', b"}")])
    depth = rng.choice([5, 100, 1000, 20_000])
    field = rng.choice([b"prompt", b"messages", b"stop", b"logit_bias"])
    return b'{"' + field + b'":' + opening * depth + b"1" + closing * depth + b"}"


def broken_text(body: Body, rng: random.Random) -> bytes:
    wrong = rng.choice(
        [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc0\xaf", b"\x00", b"\n", b"\\x", b"\\u12"]
    )
    return encoded(body).replace("ä".encode(), wrong)


def half_a_pair(body: Body, rng: random.Random) -> bytes:
    return encoded(body).replace("ä".encode(), rng.choice([b"\\ud800", b"\\udc00", b"\\ud800x", b"\\udc00\\ud800"]))


def huge_list(body: Body, rng: random.Random) -> bytes:
    items: list[Any] = [rng.choice([1, "a", None, [], {}])] * rng.choice([2000, 50_000])
    return encoded(body | {rng.choice(["prompt", "messages", "stop"]): [*items, {"a": 1}, 1, "a"]})


def unknown_field(body: Body, rng: random.Random) -> bytes:
    return encoded(body | {f"field{i}": 1 for i in range(rng.choice([1, 3000]))})


def no_object(body: Body, rng: random.Random) -> bytes:
    return rng.choice(
        [b"", b" ", b"null", b"3", b'"text"', b"true", b"[]", b"[" + encoded(body) + b"]", b"\xef\xbb\xbf"]
    )


def with_more_behind(body: Body, rng: random.Random) -> bytes:
    return encoded(body) + rng.choice([b"}", b"x", b",", encoded(body), b"\x00", b"\xff"])


def without_what_it_needs(body: Body, rng: random.Random) -> bytes:
    return encoded({name: value for name, value in body.items() if name not in ("prompt", "messages")})


CHANGES: tuple[Callable[[Body, random.Random], bytes], ...] = (
    cut,
    of_wrong_type,
    huge_number,
    no_number,
    nested,
    broken_text,
    half_a_pair,
    huge_list,
    unknown_field,
    no_object,
    with_more_behind,
    without_what_it_needs,
)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    model = FakeModel(max_num_seqs=16)
    model.seconds_per_step = 0.002
    with serving(model) as running:
        yield running


async def good_streams(client: httpx.AsyncClient, number: int, is_over: asyncio.Event) -> int:
    """One stream after the other, each of which says what it says undisturbed; how many there were."""
    body = asked([number, number + 1], 60, stream=True)
    num_answered = 0
    while not is_over.is_set():
        answer = await client.post("/v1/completions", json=body)
        assert token_ids(answer.content) == expected(body)
        num_answered += 1
    return num_answered


async def bad_bodies(client: httpx.AsyncClient, num_bodies: int) -> None:
    rng = random.Random(8)
    for number in range(num_bodies):
        change = CHANGES[number % len(CHANGES)]
        path = rng.choice(list(RIGHT))
        content = change(RIGHT[path], rng)
        answer = await client.post(path, content=content, headers=JSON)
        told = (change.__name__, path, content[:200], answer.status_code, answer.text)
        assert 400 <= answer.status_code < 500, told
        error = answer.json()["error"]
        assert error["type"] == "invalid_request_error", told
        assert "no tokenizer" not in error["message"], f"refused for another reason: {told}"
        assert len(error["message"]) < 2000, told


@pytest.mark.parametrize("num_bodies", [240, pytest.param(2000, marks=pytest.mark.slow)])
def test_wrong_bodies_are_refused_while_good_streams_run(server, num_bodies):
    async def run() -> list[int]:
        is_over = asyncio.Event()
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            good = [asyncio.create_task(good_streams(client, i, is_over)) for i in range(NUM_GOOD)]
            try:
                await bad_bodies(client, num_bodies)
            finally:
                is_over.set()
            return await asyncio.gather(*good)

    assert min(asyncio.run(run())) > 0
    server.llm.wait_until_idle()
    assert server.service._num_sequences == 0


@pytest.mark.parametrize("path", RIGHT)
def test_the_bodies_that_are_changed_are_right(server, path):
    answer = httpx.post(f"{server.url}{path}", json=RIGHT[path])
    assert answer.status_code == 200 or "no tokenizer" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "text/json", "", None],
)
def test_a_page_of_elsewhere_cannot_ask_without_asking_whether_it_may(server, kind):
    """A browser sends these kinds for any page without asking first, and others only where an answer allows it."""
    headers = {"origin": "http://elsewhere"} | ({} if kind is None else {"content-type": kind})
    content = json.dumps(asked([1], 1)).encode()
    request = httpx.Request("POST", f"{server.url}/v1/completions", content=content, headers=headers)
    with httpx.Client() as client:
        answer = client.send(request)
        assert (answer.status_code, "Content-Type" in answer.text) == (400, True)  # whatever FastAPI makes of it
        asking = {"origin": "http://elsewhere", "access-control-request-method": "POST"}
        may = client.options(f"{server.url}/v1/completions", headers=asking)
    assert may.status_code == 405
    assert not [name for name in may.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "content",
    [
        b'{"prompt":[' + b'1,"a",' * 600_000 + b"1]}",
        b'{"prompt":[' + b"{}," * 1_300_000 + b"1]}",
        b'{"prompt":[' + b"[]," * 1_300_000 + b"[1]]}",
        b'{"prompt":[' + b"1," * 2_000_000 + b"1]}",
        b'{"prompt":[1],' + b",".join(b'"f%d":1' % i for i in range(300_000)) + b"}",
        b'{"prompt":[1],"metadata":{' + b",".join(b'"f%d":1' % i for i in range(300_000)) + b"}}",
        b'{"prompt":[1],"stream_options":{' + b",".join(b'"f%d":1' % i for i in range(300_000)) + b"}}",
    ],
    ids=["mixed", "objects", "lists", "ids", "fields", "metadata", "options"],
)
@pytest.mark.slow
def test_a_large_wrong_body_holds_nobody_up(server, content):
    """pydantic finds an error in each of a million items; to write them down took 18 seconds, in which all waited."""

    async def run() -> float:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            loop = asyncio.get_running_loop()
            asking = asyncio.create_task(client.post("/v1/completions", content=content, headers=JSON))
            longest = 0.0
            while not asking.done():
                began = loop.time()
                assert (await client.get("/health")).status_code == 200
                longest = max(longest, loop.time() - began)
                await asyncio.sleep(0.01)
            assert asking.result().status_code == 400
            return longest

    assert asyncio.run(run()) < 1
