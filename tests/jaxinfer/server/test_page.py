"""What the chat page is sent with; what it does is tested in tests/browser, where there is one."""

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from httpx import Response

from jaxinfer.server.routes import page


class _Inline(HTMLParser):
    """Collects what stands in scripts and styles, and every address and handler that an attribute has."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self.addresses: list[str | None] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for name, value in attrs if name in ("src", "href", "action", "srcset", "data")]
        self.handlers += [name for name, _ in attrs if name.startswith("on") or name == "style"]
        if tag in self.texts:
            self.texts[tag].append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem in self.texts:
            self.texts[self.cdata_elem][-1] += data


@pytest.fixture(scope="module")
def answer() -> Response:
    app = FastAPI()
    app.include_router(page.router)
    return TestClient(app).get("/")


@pytest.fixture(scope="module")
def inline(answer: Response) -> _Inline:
    parser = _Inline()
    parser.feed(answer.text)
    return parser


def test_the_policy_names_each_script_and_style_by_its_hash_and_nothing_else(answer: Response, inline: _Inline) -> None:
    """https://www.w3.org/TR/CSP3/#match-element-to-source-list"""
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    for tag, texts in inline.texts.items():
        hashes = [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in texts]
        assert hashes and policy.pop(f"{tag}-src") == " ".join(hashes)
    assert policy == {
        "default-src": "'none'",
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


def test_the_page_is_whole_without_any_other_file(answer: Response, inline: _Inline) -> None:
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert [address for address in inline.addresses if not str(address).startswith("data:")] == []
    assert inline.handlers == []
    [style] = inline.texts["style"]
    assert re.search(r"url\(|@import", style) is None


def test_no_text_becomes_html(inline: _Inline) -> None:
    script = "".join(inline.texts["script"])
    assert re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", script) is None
