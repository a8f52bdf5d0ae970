"""What a server is sent, and which model it is found to have."""

import json

import pytest

from jaxinfer.bench.served_model import ServedModel, served_model
from jaxinfer.bench.target import Target, api_root, checked_endpoint
from jaxinfer.bench.workload import Ask
from jaxinfer.openai_api.completion_body import CompletionBody
from tests.sse_server import fake_server, json_answer, refusal


@pytest.mark.parametrize("base_url", ["http://a:1", "http://a:1/", "http://a:1/v1", "http://a:1/v1/"])
def test_an_address_is_one_with_v1_or_without(base_url):
    assert api_root(base_url) == "http://a:1"


@pytest.mark.parametrize(
    ("base_url", "message"),
    [
        ("", "the address is ''; it must be http://HOST:PORT or https://HOST:PORT"),
        ("localhost:8000", "the address is 'localhost:8000'"),
        ("ftp://a", "the address is 'ftp://a'"),
        ("http://a:port", "the address is 'http://a:port'"),
    ],
)
def test_what_is_no_address_is_refused(base_url, message):
    with pytest.raises(ValueError, match=message):
        api_root(base_url)


def test_a_password_is_refused_and_not_shown():
    with pytest.raises(ValueError, match="a user or a password in it") as caught:
        api_root("http://user:hidden@a:1")
    assert "hidden" not in str(caught.value)


def test_an_endpoint_that_is_none():
    assert checked_endpoint("chat") == "chat"
    with pytest.raises(ValueError, match="the endpoint is 'edits'; it must be completions or chat"):
        checked_endpoint("edits")


def test_a_completion():
    target = Target(root="http://a", endpoint="completions", model="m", api_key="k", fields={"top_k": 3})
    request = target.request(Ask("Hällo", 9))
    assert (request.method, str(request.url)) == ("POST", "http://a/v1/completions")
    assert request.headers["authorization"] == "Bearer k"
    body = json.loads(request.content)
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    assert body == {"model": "m", "prompt": "Hällo", "max_tokens": 9, "top_k": 3} | usage
    assert CompletionBody(**body).params().max_tokens == 9  # our own server takes it
    assert "k" not in repr(target).replace("api_key", "").replace("top_k", "")


def test_a_conversation():
    request = Target(root="http://a", endpoint="chat", model="m").request(Ask("Hello", 9))
    body = json.loads(request.content)
    assert str(request.url) == "http://a/v1/chat/completions"
    assert (body["messages"], body["max_completion_tokens"]) == ([{"role": "user", "content": "Hello"}], 9)
    assert "authorization" not in request.headers


def asked(answer, name=None):
    with fake_server(lambda path, body: answer) as server:
        found = served_model(server.url, "key", name)
    [(path, headers, _)] = server.calls
    assert (path, headers["authorization"]) == ("/v1/models", "Bearer key")
    return found


LISTED = json_answer({"data": [{"id": "first", "max_model_len": 128}, {"id": "second"}]})


def test_a_model_of_the_list():
    assert asked(LISTED) == ServedModel("first", 128)
    assert asked(LISTED, "second") == ServedModel("second", None)


@pytest.mark.parametrize("answer", [LISTED, refusal(404, "nothing here"), json_answer({"data": []})])
def test_a_name_that_is_not_listed_may_be_served(answer):
    assert asked(answer, "other") == ServedModel("other", None)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (refusal(401, "bring a key"), "/v1/models answers 401: bring a key"),
        (json_answer({"data": []}), "/v1/models lists no model; give the name with --model"),
        (json_answer([]), "answers '[]', which is no list of models"),
        (json_answer({"data": [3]}), "which is no list of models"),
    ],
)
def test_a_server_that_tells_no_model(answer, message):
    with pytest.raises(ValueError) as caught:
        asked(answer)
    assert message in str(caught.value)


def test_a_server_that_is_not_there():
    with fake_server(lambda path, body: LISTED) as server:
        pass
    with pytest.raises(ValueError, match=f"{server.url} cannot be reached: "):
        served_model(server.url, None, "m")
