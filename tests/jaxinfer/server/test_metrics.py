"""What the server counts, against what was asked of it, through Prometheus' own parser."""

from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.served_fakes import FakeModel, asked
from tests.servers import RunningServer, serving

PROMPT = [*range(20)]  # five pages


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serving(FakeModel(page_size=4, num_kv_pages=512, max_num_seqs=8), max_queue=0) as running:
        yield running


def counted(server: RunningServer) -> dict[str, float]:
    """The samples by their name, with their labels but for buckets."""
    text = httpx.get(f"{server.url}/metrics").text
    return {
        sample.name.removeprefix("jaxinfer_") + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def test_everything_is_counted(server):
    model, before = server.llm, counted(server)
    with httpx.Client(base_url=server.url, timeout=10) as client:
        client.post("/v1/completions", json=asked(PROMPT, 6))
        client.post("/v1/completions", json=asked(PROMPT, 6))
        client.post("/v1/completions", json=asked(PROMPT, 1, stream=True))
        client.post("/v1/completions", json=asked(PROMPT, 6, n=9))  # refused, and not for a full queue
        model.seconds_per_step = 0.01
        with client.stream("POST", "/v1/completions", json=asked([900], 300, n=3, stream=True)) as answer:
            lines = answer.iter_lines()  # which, thrown away, closes the stream
            next(lines)
            running = counted(server)
            with client.stream("POST", "/v1/completions", json=asked([901], 200, n=4, stream=True)) as other:
                other_lines = other.iter_lines()
                next(other_lines)
                assert client.post("/v1/completions", json=asked([902], 2, n=3)).status_code == 429
        model.wait_until_idle()
        model.seconds_per_step = 0.0
    now = counted(server)
    change = {name: value - before.get(name, 0.0) for name, value in now.items()}
    assert running["requests_running"] == 3
    assert 0 < running["kv_cache_usage_ratio 0"] < 0.5
    assert (now["requests_running"], now["requests_waiting"], now["kv_cache_usage_ratio 0"]) == (0, 0, 0)
    assert (change["requests_total length"], change["requests_total abort"]) == (3, 7)
    assert change["requests_refused_total"] == 1
    assert change["prefix_cache_hit_tokens_total"] == 2 * 16  # all pages but the last, whose end is computed
    assert change["generation_tokens_total"] > 13
    for histogram in ("time_to_first_token", "request_queue_time", "e2e_request_latency"):
        assert change[f"{histogram}_seconds_count"] == 3
    assert change["time_per_output_token_seconds_count"] == 2  # one token has no time after the first
    assert change["time_to_first_token_seconds_sum"] <= change["e2e_request_latency_seconds_sum"] < 3
