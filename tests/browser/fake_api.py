"""The page's server in place of a model: what it answers is written by the test."""

import json
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient
from playwright.sync_api import Route

from jaxinfer.server.routes import page

URL = "http://localhost/"
MODEL = "fake-1"

_APP = FastAPI()
_APP.include_router(page.router)


def event(**content: Any) -> str:
    """One event of a stream."""
    return f"data: {json.dumps(content)}\n\n"


def stream(text: str) -> str:
    """A whole stream that answers with ``text``, a word at a time."""
    words = [event(choices=[{"delta": {"content": word}}]) for word in text.split(" ")]
    spaced = event(choices=[{"delta": {"content": " "}}]).join(words)
    ended = event(choices=[{"delta": {}, "finish_reason": "stop"}])
    return f"{spaced}{ended}{event(choices=[], usage={'completion_tokens': 7})}data: [DONE]\n\n"


class FakeApi:
    """Takes every request of a page; to be given to ``new_page`` as ``serve``.

    Attributes:
        answers: arguments of ``Route.fulfill`` by path; None lets the request wait for ever, and text breaks it off
            with that error.
        calls: (path, headers, body) of every request but the page's own.
    """

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, Any] | str | None] = {
            "/v1/models": {"json": {"data": [{"id": MODEL}]}},
            "/health": {"json": {"status": "ok"}},
        }
        self.counts(running=0, waiting=0, usage=0, tokens=0)
        self.says("Good")
        self.calls: list[tuple[str, dict[str, str], Any]] = []
        response = TestClient(_APP).get("/")
        assert response.status_code == 200
        self._page = {"body": response.text, "headers": dict(response.headers)}

    def says(self, text: str) -> None:
        """Answer with ``text`` from now on."""
        self.answers["/v1/chat/completions"] = {"body": stream(text)}

    def refuses(self, status: int, message: str) -> None:
        """Answer with an error from now on."""
        self.answers["/v1/chat/completions"] = {"status": status, "json": {"error": {"message": message}}}

    def counts(self, *, running: int, waiting: int, usage: float, tokens: int) -> None:
        """Show these numbers from now on, ``usage`` of the second of two groups of the cache."""
        self.answers["/metrics"] = {
            "body": "# HELP jaxinfer_requests_running Sequences in the batch.\n"
            f"jaxinfer_requests_running {running}.0\njaxinfer_requests_waiting {waiting}.0\n"
            'jaxinfer_kv_cache_usage_ratio{group="0"} 0.0\n'
            f'jaxinfer_kv_cache_usage_ratio{{group="1"}} {usage}\n'
            f"jaxinfer_generation_tokens_total {tokens}.0\njaxinfer_generation_tokens_created 1.7e+09\n"
        }

    def __call__(self, route: Route) -> None:
        """Answer a request."""
        request = route.request
        path = request.url.removeprefix(URL.rstrip("/"))
        if path == "/":
            route.fulfill(**self._page)
            return
        self.calls.append((path, request.headers, request.post_data_json))
        answer = self.answers[path]
        if isinstance(answer, str):
            route.abort(answer)
        elif answer is not None:
            route.fulfill(**answer)

    def bodies(self) -> list[Any]:
        """The bodies of the chats."""
        return [body for path, _, body in self.calls if path == "/v1/chat/completions"]
