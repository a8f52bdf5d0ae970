"""The chat page in a browser, with a small real model behind it."""

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from jaxinfer.llm import LLM
from tests.browser.conftest import NewPage
from tests.engines import one_program
from tests.servers import MODEL, RunningServer, serving

TEMPLATE = "{{ bos_token }}{% for message in messages %} {{ message.content }}{% endfor %}"


@pytest.fixture(scope="module")
def server(browser: Browser, shared_data: Path) -> Iterator[RunningServer]:
    """After the browser, so that no model is loaded where there is none."""
    with one_program():
        llm = LLM(shared_data / "stories260K-hf", max_num_seqs=4, max_chunk_tokens=32, max_model_len=128)
    llm.tokenizer.chat_template = TEMPLATE
    with serving(llm) as server:
        yield server


@pytest.fixture
def slow(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step takes so long that there is time to look at an answer and to stop it."""
    step = server.llm.engine.step

    def step_slowly():
        time.sleep(0.02)
        return step()

    monkeypatch.setattr(server.llm.engine, "step", step_slowly)


def message_of(page: Page) -> Locator:
    """Where messages are written."""
    return page.get_by_role("textbox", name="Message", exact=True)


def answer(page: Page, number: int = 0) -> Locator:
    """An answer's text on the page."""
    return page.locator(".exchange").nth(number).locator(".text")


def ask(page: Page, text: str) -> None:
    """Send a message by keyboard and wait until it is answered."""
    message_of(page).fill(text)
    page.keyboard.press("Enter")
    expect(page.locator(".again:visible")).to_have_count(1)


def set_values(page: Page, **values: str) -> None:
    """Set the controls of these names."""
    for name, value in values.items():
        page.locator(f"[name={name}]").fill(value)


def num_aborted(server: RunningServer) -> float:
    """Requests that were ended before their end."""
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith('jaxinfer_requests_total{finish_reason="abort"')
    )


def bodies_of(page: Page) -> list[dict]:
    """A list that gets the body of each call that the page makes."""
    bodies: list[dict] = []
    page.on("request", lambda request: bodies.append(request.post_data_json) if request.method == "POST" else None)
    return bodies


@pytest.mark.usefixtures("slow")
def test_an_answer_grows_on_the_page_and_is_what_the_api_gives(server: RunningServer, new_page: NewPage) -> None:
    page = new_page(server.url)
    bodies = bodies_of(page)
    set_values(page, temperature="0", max_tokens="20")
    page.evaluate(
        """() => {
            window.seen = new Set();
            const look = () => seen.add(document.querySelector(".text")?.textContent ?? "");
            new MutationObserver(look).observe(conversation, { childList: true, subtree: true, characterData: true });
        }"""
    )
    ask(page, "Once upon a time")
    shown = answer(page).text_content()
    seen = [text for text in page.evaluate("[...seen]") if text]
    assert len(seen) > 5 and all(later.startswith(earlier) for earlier, later in pairwise(seen))

    whole = {name: value for name, value in bodies[0].items() if not name.startswith("stream")}
    told = httpx.post(f"{server.url}/v1/chat/completions", json=whole).json()
    assert whole == {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Once upon a time"}],
        "temperature": 0,
        "max_tokens": 20,
    }
    assert shown == told["choices"][0]["message"]["content"].strip()
    expect(page.locator(".figures")).to_contain_text(f"{told['usage']['completion_tokens']} tokens · ")
    expect(page.locator(".figures")).to_contain_text("cut at the longest that is allowed")


@pytest.mark.parametrize("how", ["button", "Escape"])
@pytest.mark.usefixtures("slow")
def test_stop_ends_the_request_and_keeps_what_was_said(how: str, server: RunningServer, new_page: NewPage) -> None:
    page = new_page(server.url)
    aborted = num_aborted(server)
    set_values(page, temperature="0", max_tokens="")
    message_of(page).fill("Once upon a time")
    page.get_by_role("button", name="Send").click()
    expect(answer(page)).not_to_be_empty()
    scheduler = server.llm.engine.scheduler
    assert scheduler.num_running == 1
    expect(page.locator("#series-running b")).to_have_text("1")
    if how == "button":
        page.get_by_role("button", name="Stop").click()
    else:
        page.keyboard.press("Escape")
    late = time.monotonic() + 5
    while scheduler.num_running and time.monotonic() < late:
        time.sleep(0.01)
    assert scheduler.num_running == 0
    assert num_aborted(server) == aborted + 1
    expect(page.locator(".figures")).to_contain_text("stopped")
    expect(answer(page)).not_to_be_empty()
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def test_a_conversation_by_keyboard_alone(server: RunningServer, new_page: NewPage) -> None:
    """The second message is asked with the first exchange before it; an answer is drawn anew; all is forgotten."""
    page = new_page(server.url)
    bodies = bodies_of(page)
    set_values(page, max_tokens="8", seed="5", system="Stories")
    message = message_of(page)
    message.focus()
    page.keyboard.type("Once")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("upon")
    page.keyboard.press("Enter")
    expect(page.locator(".again:visible")).to_have_count(1)
    first = answer(page).text_content()
    expect(message).to_be_focused()
    ask(page, "And then")
    assert [message["content"].strip() for message in bodies[1]["messages"]] == [
        "Stories",
        "Once\nupon",
        first,
        "And then",
    ]
    second = answer(page, 1).text_content()

    for _ in range(10):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.textContent") == "Regenerate":
            break
    page.keyboard.press("Enter")
    expect(page.locator(".again:visible")).to_have_count(1)
    assert bodies[2] == bodies[1]
    assert answer(page, 1).text_content() == second  # the seed is the same

    page.get_by_label("New conversation").press("Enter")
    expect(page.locator(".exchange")).to_have_count(0)
    ask(page, "Tom")
    assert [message["content"] for message in bodies[3]["messages"]] == ["Stories", "Tom"]


def test_a_model_without_a_template_goes_on_from_the_text(
    server: RunningServer, new_page: NewPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.llm.tokenizer, "chat_template", None)
    page = new_page(server.url, allowed="400 (Bad Request)")
    bodies = bodies_of(page)
    set_values(page, temperature="0", max_tokens="8")
    ask(page, "Once upon a time")
    expect(page.get_by_text("This model has no chat template")).to_be_visible()
    body = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 8}
    told = httpx.post(f"{server.url}/v1/completions", json=body).json()["choices"][0]["text"]
    assert answer(page).text_content() == told.strip()
    ask(page, "Tom")
    assert ["messages" in body for body in bodies] == [True, False, False]
    assert bodies[-1]["prompt"] == f"Once upon a time{told}\nTom"
