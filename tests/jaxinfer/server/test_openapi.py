"""The OpenAPI document says what is true: whatever fits it is answered as it says, and what does not is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from jaxinfer.llm import LLM
from jaxinfer.programs import Draw
from tests.engines import one_program
from tests.servers import RunningServer, serving

KEY = "a-key"
load_all_checks()
# Whether a call is taken depends on more than a schema says: the model's length, its vocabulary, one field on another.
UNTOLD = "positive_data_acceptance"


@pytest.fixture(scope="module")
def server(shared_data: Path) -> Iterator[RunningServer]:
    with one_program():
        llm = LLM(shared_data / "stories260K-hf", max_num_seqs=4, max_chunk_tokens=32, max_model_len=64)
    programs = llm.engine._runner.programs
    for b in programs.rows:  # its own takes two seconds to compile
        programs.sample[Draw.TRUNCATED, b] = programs.sample[Draw.PLAIN, b]
    llm.tokenizer.chat_template = "{{ messages | map(attribute='content') | join }}"
    with serving(llm, api_key=KEY, max_sequences=8) as running:
        yield running


@pytest.fixture(scope="module")
def document(server: RunningServer) -> dict[str, Any]:
    return httpx.get(f"{server.url}/openapi.json").raise_for_status().json()


@pytest.fixture(scope="module")
def api(server: RunningServer) -> Any:
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


HI = [{"role": "user", "content": "Once"}]
CALLS = [
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model}"),
    ("GET", "/health"),
    ("GET", "/metrics"),
]


def answer(case: Any) -> int:
    """The status of the answer to a call, at which schemathesis has looked."""
    checks = [CHECKS.get_one(name) for name in CHECKS.get_all_names() if name != UNTOLD]
    headers = {"Authorization": f"Bearer {KEY}"}
    return case.call_and_validate(headers=headers, checks=checks, timeout=20).status_code


def check(operation: Any, mode: GenerationMode, num_examples: int) -> None:
    """Sends calls that fit the document, or do not."""

    @settings(
        max_examples=num_examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        answer(case)

    send()


def test_all_is_documented_and_nothing_else(document: dict[str, Any]) -> None:
    told = [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]
    assert sorted(told) == sorted(CALLS)
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert not any("422" in operation["responses"] for operation in operations)
    assert {"key": []} in document["paths"]["/tokenize"]["post"]["security"]
    assert "security" not in document["paths"]["/health"]["get"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "Once", "max_tokens": 2}),
        (
            "/v1/completions",
            {"prompt": ["Once", "A"], "n": 2, "echo": True, "logprobs": 2, "return_token_ids": True},
        ),
        ("/v1/completions", {"prompt": "Once", "stream": True, "max_tokens": 2}),
        ("/v1/chat/completions", {"messages": HI, "max_tokens": 2, "logprobs": True, "top_logprobs": 2}),
        ("/v1/chat/completions", {"messages": HI, "stream": True, "max_tokens": 2}),
        ("/tokenize", {"prompt": "Once"}),
        ("/tokenize", {"messages": HI}),
        ("/detokenize", {"tokens": [1, 2]}),
    ],
)
def test_what_is_answered_well_is_documented(api: Any, path: str, body: dict[str, Any]) -> None:
    """Few of the calls that schemathesis makes up come so far."""
    assert answer(api[path]["POST"].Case(body=body, media_type="application/json")) == 200


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_what_is_answered_is_what_is_documented(api: Any, method: str, path: str) -> None:
    check(api[path][method], GenerationMode.POSITIVE, 10)
    if method == "POST":
        check(api[path][method], GenerationMode.NEGATIVE, 10)


@pytest.mark.slow
@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize(("method", "path"), CALLS[:4])
def test_the_same_at_length(api: Any, method: str, path: str, mode: GenerationMode) -> None:
    check(api[path][method], mode, 300)
