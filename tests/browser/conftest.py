"""A browser without a window, and pages in it that may neither complain nor ask anybody but their server."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

NewPage = Callable[..., Page]

_PATIENCE = 30_000
"""Milliseconds that anything on a page may take where other tests have the cores."""
_ARGS = ["--no-sandbox", "--disable-dev-shm-usage"]
"""So that it runs as root, and in a container with little shared memory."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's chromium; ended with the file, since its event loop would be in the way of others."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs a browser: chromium, chromium-browser or google-chrome on the PATH")
    expect.set_options(timeout=_PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_ARGS)
        yield browser
        browser.close()


@pytest.fixture
def new_page(browser: Browser) -> Iterator[NewPage]:
    """Opens ``url`` in a window of its own.

    At the end of the test its console must be empty but for what ``allowed`` is part of, and every request must have
    gone to the host of ``url``.
    """
    contexts, complaints = [], []

    def open_page(url: str, *, allowed: str = "", serve: Callable[..., None] | None = None, **window: Any) -> Page:
        context = browser.new_context(**window)
        context.set_default_timeout(_PATIENCE)
        contexts.append(context)
        page = context.new_page()

        def complain(text: str) -> None:
            if not allowed or allowed not in text:
                complaints.append(text)

        page.on("console", lambda message: complain(message.text))
        page.on("pageerror", lambda error: complain(str(error)))
        here = urlsplit(url).netloc
        page.on("request", lambda request: urlsplit(request.url).netloc in (here, "") or complain(request.url))
        if serve is not None:
            page.route("**/*", serve)
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
