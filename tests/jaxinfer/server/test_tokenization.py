"""``/tokenize`` and ``/detokenize``: what the model's own tokenizer gives; the engine is never asked."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from jaxinfer.prompt_rendering import PromptRenderer
from jaxinfer.tokenizers import load_tokenizer
from tests.served_fakes import FakeModel
from tests.servers import serving

SAID, TOOL = "{% for m in messages %}{{ m.content }}{% endfor %}", "{{ ' ' ~ tools[0].function.name if tools }}"
TEMPLATE = "{{ bos_token }}" + SAID + TOOL + "{{ x }}"
TOOLS = [{"type": "function", "function": {"name": "tool"}}]


@pytest.fixture(scope="module")
def llm(shared_data: Path) -> Any:
    llm: Any = FakeModel()
    llm.tokenizer = load_tokenizer(shared_data / "stories260K-hf")
    llm.tokenizer.chat_template = TEMPLATE
    llm.renderer, llm.model_config = PromptRenderer(llm.tokenizer), SimpleNamespace(vocab_size=512)
    return llm


@pytest.fixture(scope="module")
def client(llm: Any) -> Iterator[httpx.Client]:
    with serving(llm) as server, httpx.Client(base_url=server.url) as client:
        yield client


def asked(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("text", ["Once upon a time", "Zoë said: “\U0001f680”", ""])
def test_a_text_is_tokenized_and_read_back(client: httpx.Client, llm: Any, text: str) -> None:
    told = asked(client, "/tokenize", {"prompt": text})
    assert told == {"tokens": llm.tokenizer.encode(text), "count": len(told["tokens"]), "max_model_len": 2048}
    bare = asked(client, "/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]
    assert [llm.tokenizer.bos_token_id, *bare] == told["tokens"]
    assert asked(client, "/detokenize", {"tokens": told["tokens"]}) == {"prompt": text}


def test_a_conversation_is_tokenized_as_it_is_answered(client: httpx.Client, llm: Any) -> None:
    messages = [{"role": "user", "content": "Once upon a"}]
    with_tools = {"tools": TOOLS, "chat_template_kwargs": {"x": "!"}}
    for more, text in (({}, "Once upon a"), (with_tools, "Once upon a tool!")):
        told = asked(client, "/tokenize", {"messages": messages} | more)
        assert told["tokens"] == llm.tokenizer.encode(text)


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/tokenize", {}, "one of prompt and messages"),
        ("/tokenize", {"prompt": "a", "messages": []}, "one of prompt and messages"),
        ("/tokenize", {"prompt": "a", "tools": TOOLS}, "tools does not go with prompt"),
        ("/tokenize", {"messages": [], "add_special_tokens": True}, "add_special_tokens does not go with messages"),
        ("/tokenize", {"messages": [{"role": "user"}]}, "['content'] is None"),
        ("/tokenize", {"prompt": 3}, "prompt is 3; it must be a valid string"),
        ("/detokenize", {"tokens": [1, 512]}, "tokens has 512; a token id is a whole number in [0, 512)"),
        ("/detokenize", {"tokens": [-1]}, "tokens has -1"),
        ("/detokenize", {"tokens": ["a"]}, "tokens.0 is 'a'; it must be a valid integer"),
        ("/detokenize", {"tokens": [1.5] * 1000}, "tokens.0 is 1.5; it must be a valid integer"),
    ],
)
def test_what_is_wrong_is_named(client: httpx.Client, path: str, body: dict[str, Any], words: str) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


def test_another_model_is_not_there(client: httpx.Client) -> None:
    assert client.post("/tokenize", json={"prompt": "a", "model": "other"}).status_code == 404


@pytest.mark.parametrize(("path", "body"), [("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [1]})])
def test_a_model_without_a_tokenizer_has_none(
    client: httpx.Client, llm: Any, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    monkeypatch.setattr(llm, "tokenizer", None)
    answer = client.post(path, json=body)
    assert (answer.status_code, "the model has no tokenizer" in answer.text) == (400, True)
