"""How the chat page looks and what it shows of the server: phones, light and dark, contrast, the live lines."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NewPage
from tests.browser.fake_api import URL, FakeApi

LONG = "supercalifragilistic" * 8
EVERYTHING = f"# Head\n{LONG} **bold** `{LONG}`\n- item {LONG}\n1. one\n```\n{LONG}\n```"

CONTRASTS = """() => {
    // https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio and #dfn-relative-luminance
    const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
    const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const ground = (node) => {
        const color = numbers(getComputedStyle(node).backgroundColor);
        return color[3] === 0 ? ground(node.parentElement) : color;
    };
    const ratio = (color, node) => {
        const [dark, light] = [luminance(numbers(color)), luminance(ground(node))].sort((a, b) => a - b);
        return (light + 0.05) / (dark + 0.05);
    };
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = [];
    while (texts.nextNode()) {
        const node = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || !node.checkVisibility({ visibilityProperty: true })) continue;
        if (node.matches("script, style, noscript *, .only-heard")) continue;
        found.push([ratio(getComputedStyle(node).color, node), texts.currentNode.data.trim().slice(0, 40)]);
    }
    for (const node of document.querySelectorAll("input, textarea")) {
        found.push([ratio(getComputedStyle(node, "::placeholder").color, node), node.name || node.id]);
    }
    return found;
}"""


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


def fill(page: Page, api: FakeApi) -> None:
    """Bring everything that there is onto the page: an answer with all kinds of blocks, a notice and an error."""
    for answer in (EVERYTHING, None):
        if answer is None:
            api.refuses(400, f"this model has no place for {LONG}")
        else:
            api.says(answer)
        page.get_by_role("textbox", name="Message", exact=True).fill(f"Say {LONG}")
        page.keyboard.press("Enter")
        expect(page.locator(".again:visible")).to_have_count(1)
    page.evaluate("document.getElementById('no-template').hidden = false")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground_in_light_and_dark(scheme: str, api: FakeApi, new_page: NewPage) -> None:
    """As the system has it, and after a switch to the other and a reload, which keeps it."""
    page = new_page(URL, serve=api, allowed="400 (Bad Request)", color_scheme=scheme)
    is_dark = "getComputedStyle(document.body).backgroundColor === 'rgb(21, 24, 22)'"
    assert page.evaluate(is_dark) == (scheme == "dark")
    empty = page.evaluate(CONTRASTS)
    fill(page, api)
    full = page.evaluate(CONTRASTS)
    assert len(empty) > 20 and len(full) > 25
    assert [pair for pair in empty + full if pair[0] < 4.5] == []
    page.get_by_label("Switch between light and dark").click()
    page.reload()
    assert page.evaluate(is_dark) == (scheme == "light")


@pytest.mark.parametrize("width", [320, 390])
def test_nothing_is_wider_than_a_phone(width: int, api: FakeApi, new_page: NewPage) -> None:
    page = new_page(
        URL,
        serve=api,
        allowed="400 (Bad Request)",
        viewport={"width": width, "height": 640},
        has_touch=True,
        reduced_motion="reduce",
    )
    beyond = """() => [...document.querySelectorAll("body *")].filter((node) => {
        const { left, right, width } = node.getBoundingClientRect();
        const isSeen = width > 1 && node.checkVisibility({ visibilityProperty: true }) && !node.closest("pre, svg");
        const scrolls = node.matches("#conversation, #side") && node.scrollWidth > node.clientWidth;
        return isSeen && (left < -1 || right > innerWidth + 1 || scrolls);
    }).map((node) => node.outerHTML.slice(0, 80))"""
    assert page.evaluate(beyond) == []
    fill(page, api)
    assert page.evaluate(beyond) == []
    assert page.evaluate("document.scrollingElement.scrollWidth") == width
    page.get_by_label("Settings and server", exact=True).and_(page.locator("button")).click()
    expect(page.get_by_label("Temperature")).to_be_in_viewport()
    assert page.evaluate(beyond) == []
    page.keyboard.press("Escape")
    expect(page.get_by_label("Temperature")).to_be_hidden()
    assert page.evaluate("document.activeElement.id") == "open-side"


def test_the_end_is_followed_until_one_scrolls_up(api: FakeApi, new_page: NewPage) -> None:
    api.says("a\n\n" * 60)
    page = new_page(URL, serve=api)
    message = page.get_by_role("textbox", name="Message", exact=True)
    to_end = page.get_by_role("button", name="To the end")
    distance = "conversation.scrollHeight - conversation.scrollTop - conversation.clientHeight"
    message.fill("Hello")
    message.press("Enter")
    expect(page.locator(".again:visible")).to_have_count(1)
    assert page.evaluate(distance) < 2
    page.evaluate("conversation.scrollTop = 0")
    expect(to_end).to_be_visible()
    page.evaluate("exchanges[0].view.show(exchanges[0].answer + 'more', '')")
    assert page.evaluate("conversation.scrollTop") == 0
    to_end.click()
    expect(to_end).to_be_hidden()
    assert page.evaluate(distance) < 2


def test_controls_go_into_the_call_and_are_remembered(api: FakeApi, new_page: NewPage) -> None:
    page = new_page(URL, serve=api)
    values = {"temperature": "0.25", "top_p": "0.5", "max_tokens": "9", "seed": "11", "system": "Be brief"}
    for name, value in values.items():
        page.locator(f"[name={name}]").fill(value)
    page.reload()
    assert page.evaluate("[...document.forms.settings.elements].map(({value}) => value)")[1:] == list(values.values())
    message = page.get_by_role("textbox", name="Message", exact=True)
    page.locator("[name=max_tokens]").fill("0")
    message.fill("Hello")
    message.press("Enter")
    expect(page.locator("[name=max_tokens]")).to_be_focused()
    page.locator("[name=max_tokens]").fill("9")
    message.press("Enter")
    expect(page.locator(".text")).to_have_text("Good")
    [body] = api.bodies()
    assert body == {
        "model": "fake-1",
        "messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hello"}],
        "temperature": 0.25,
        "top_p": 0.5,
        "max_tokens": 9,
        "seed": 11,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_the_server_is_looked_at_each_second_while_the_page_is_seen(api: FakeApi, new_page: NewPage) -> None:
    page = new_page(URL, serve=api, allowed="503")
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    values = page.locator(".series b")
    api.counts(running=3, waiting=2, usage=0.25, tokens=1000)
    page.reload()
    expect(values).to_have_text(["3, 2 waiting", "25 %", "\N{EN DASH}"])
    api.counts(running=3, waiting=0, usage=0.031, tokens=1050)
    expect(page.locator("#dot")).to_have_attribute("data-state", "up")
    page.clock.run_for(1000)
    expect(values).to_have_text(["3", "3.1 %", "50, peak 50"])
    # A second is a step of the line, 59 the whole; the value is 3 of 4 of the height of 24.
    assert page.locator("#series-running .over").get_attribute("d") == "M58 6.00L59 6.00"

    page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
    page.clock.run_for(1000)
    looks = len(api.calls)
    page.clock.run_for(10_000)
    assert len(api.calls) == looks
    api.counts(running=0, waiting=0, usage=0, tokens=1050)
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    expect(values).to_have_text(["0", "0 %", "0, peak 50"])
    api.answers["/health"] = {"status": 503, "json": {}}
    page.clock.run_for(1000)
    expect(page.locator("#served")).to_have_text("fake-1, not answering")
    expect(values).to_have_text(["\N{EN DASH}"] * 3)
