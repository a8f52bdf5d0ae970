"""More calls than there is room for: the rest is told to come again, and those that are in are answered."""

import asyncio

import httpx

from tests.served_fakes import FakeModel, asked, expected, token_ids
from tests.servers import serving

NUM_RUN, NUM_QUEUE = 2, 4


def test_ten_times_the_queue_at_once():
    model = FakeModel(max_num_seqs=NUM_RUN)
    model.seconds_per_step = 0.02
    bodies = [asked([i, i + 1], 10, stream=i % 2 == 0) for i in range(10 * NUM_QUEUE)]

    async def ask_all(url: str) -> tuple[list[httpx.Response], list[int]]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=20, limits=limits) as client:
            calls = [asyncio.create_task(client.post("/v1/completions", json=body)) for body in bodies]
            health = []
            while not all(call.done() for call in calls):
                health.append((await client.get("/health")).status_code)
                await asyncio.sleep(0.01)
            return [call.result() for call in calls], health

    with serving(model, max_queue=NUM_QUEUE, request_timeout=10) as server:
        answers, health = asyncio.run(ask_all(server.url))
        model.wait_until_idle()
        metrics = httpx.get(f"{server.url}/metrics").text
    by_status = {status: [a for a in answers if a.status_code == status] for status in {a.status_code for a in answers}}
    assert set(by_status) == {200, 429}
    assert len(by_status[200]) >= NUM_RUN + NUM_QUEUE
    for body, answer in zip(bodies, answers, strict=True):
        if answer.status_code == 200:
            assert token_ids(answer.content) == expected(body)
        else:
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["code"] == "rate_limit_exceeded"
    assert set(health) == {200}
    assert f"jaxinfer_requests_refused_total {float(len(by_status[429]))}\n" in metrics
