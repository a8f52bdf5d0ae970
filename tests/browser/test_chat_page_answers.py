"""The chat page with answers that no small model gives: what looks like HTML, errors, a server that wants a key."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NewPage
from tests.browser.fake_api import URL, FakeApi, event, stream

HTML = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


def ask(page: Page, text: str = "Hello") -> None:
    page.get_by_role("textbox", name="Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def asked(page: Page, text: str = "Hello") -> None:
    """Ask, and wait for the end."""
    ask(page, text)
    expect(page.locator(".again:visible")).to_have_count(1)


def test_html_of_a_model_stays_text(api: FakeApi, new_page: NewPage) -> None:
    forms = [HTML, f"# {HTML}", f"**{HTML}**", f"`{HTML}`", f"- {HTML}", f"1. {HTML}", f"```{HTML}\n{HTML}\n```"]
    api.says("\n\n".join(forms))
    api.answers["/v1/models"] = {"json": {"data": [{"id": HTML}]}}
    page = new_page(URL, serve=api)
    expect(page.locator("#served")).to_have_text(HTML)
    asked(page, HTML)
    assert page.locator(".text").text_content().count(HTML) == len(forms)
    assert page.locator(".question").text_content() == HTML
    assert page.locator("img, body script:not(:last-child)").count() == 0
    assert page.title() == f"{HTML} · jaxinfer"


def test_html_of_an_error_stays_text(api: FakeApi, new_page: NewPage) -> None:
    api.refuses(400, HTML)
    page = new_page(URL, serve=api, allowed="400 (Bad Request)")
    asked(page)
    assert HTML in page.locator(".problem").text_content()
    assert page.locator("img").count() == 0


def test_the_policy_lets_no_other_script_run_and_nothing_be_fetched(api: FakeApi, new_page: NewPage) -> None:
    """Even for a fault of the page that lets HTML in."""
    page = new_page(URL, serve=api, allowed="Content Security Policy")
    page.evaluate(
        """async () => {
            document.body.append(Object.assign(document.createElement("script"), { textContent: "window.hit = 1" }));
            const image = "<img src='http://localhost/x.png' onerror='window.hit = 1'>";
            document.body.insertAdjacentHTML("beforeend", image);
            await fetch("http://localhost:81/").catch(() => {});
        }"""
    )
    assert page.evaluate("window.hit") is None
    assert {path for path, _, _ in api.calls} <= {"/v1/models", "/health", "/metrics"}


def test_a_little_markdown_is_shown(api: FakeApi, new_page: NewPage) -> None:
    blocks = ["Two **bold** and `code`\nlines", "## Head\n3. three\n4. four\n  more\n- a\n  - b"]
    api.says("\n\n".join([*blocks, "```py\na = 1\n\n* b\n```\n2*3*4"]))
    page = new_page(URL, serve=api)
    asked(page)
    shape = page.evaluate("[...document.querySelector('.text').children].map(({tagName}) => tagName)")
    assert shape == ["P", "H3", "OL", "UL", "DIV", "P"]
    text = page.locator(".text")
    assert text.locator("strong").text_content() == "bold"
    assert text.locator("p code").text_content() == "code"
    assert text.locator("ol").get_attribute("start") == "3"
    assert text.locator("li").all_text_contents() == ["three", "four\nmore", "a", "b"]
    assert text.locator("pre").text_content() == "a = 1\n\n* b"


def test_errors_are_told_and_the_question_can_be_asked_again(api: FakeApi, new_page: NewPage) -> None:
    half = event(choices=[{"delta": {"content": "Half"}}])
    answers = [
        ({"status": 429, "json": {"error": {"message": "the queue is full"}}}, "The server is busyThe queue is full."),
        ({"status": 503, "json": {"error": {"message": "it ends"}}}, "The server does not answer nowIt ends."),
        ({"status": 400, "json": {"error": {"message": "n is 0"}}}, "The server refused thisN is 0."),
        ({"status": 502, "body": "<h1>"}, "The server failedStatus 502."),
        ("connectionrefused", "The server cannot be reachedIs it still running?"),
        ({"body": event(error={"message": "it failed"}) + "data: [DONE]\n\n"}, "The answer broke offIt failed."),
        ({"body": half}, "The connection broke offThe answer is not whole."),
    ]
    page = new_page(URL, serve=api, allowed="Failed to load resource")
    for number, (answer, told) in enumerate(answers):
        api.answers["/v1/chat/completions"] = answer
        if number == 0:
            ask(page)
        else:
            page.get_by_role("button", name="Try again").click()
        expect(page.locator(".problem")).to_have_text(told)
    expect(page.locator(".text")).to_have_text("Half")
    api.answers["/v1/chat/completions"] = None
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".problem")).to_be_hidden()
    page.keyboard.press("Escape")
    api.says("Now *it* works")
    page.get_by_role("button", name="Regenerate").click()
    expect(page.locator(".text")).to_have_text("Now it works")
    asked_with = [[message["content"] for message in body["messages"]] for body in api.bodies()]
    assert asked_with == [["Hello"]] * (len(answers) + 2)


def test_what_was_stopped_before_its_first_word_is_not_told_to_the_model(api: FakeApi, new_page: NewPage) -> None:
    """Nothing moves meanwhile for those who do not want it."""
    api.answers["/v1/chat/completions"] = None
    page = new_page(URL, serve=api, reduced_motion="reduce")
    ask(page, "First")
    page.get_by_role("button", name="Stop").wait_for()
    assert page.evaluate("document.getAnimations().length") == 0
    page.keyboard.press("Escape")
    expect(page.locator(".figures")).to_have_text("stopped")
    api.says("Good")
    asked(page, "Second")
    assert [message["content"] for message in api.bodies()[-1]["messages"]] == ["Second"]


def test_a_key_is_asked_for_and_kept_for_the_tab_only(api: FakeApi, new_page: NewPage) -> None:
    models, chat = api.answers["/v1/models"], api.answers["/v1/chat/completions"]
    no = {"status": 401, "json": {"error": {"message": "the API key is missing or wrong"}}}
    api.answers |= {"/v1/models": no, "/v1/chat/completions": no}
    page = new_page(URL, serve=api, allowed="401 (Unauthorized)")
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    page.keyboard.press("Escape")
    page.wait_for_timeout(1100)  # the page has looked at the server once more
    expect(dialog).to_be_hidden()
    ask(page)
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.locator(".problem strong")).to_have_text("The server wants an API key")

    page.get_by_role("button", name="Try again").click()
    api.answers |= {"/v1/models": models, "/v1/chat/completions": chat}
    dialog.get_by_label("API key").fill("s3cret")
    page.keyboard.press("Enter")
    expect(page.locator(".text")).to_have_text("Good")
    assert [headers.get("authorization") for path, headers, _ in api.calls if path == "/v1/chat/completions"] == [
        None,
        None,
        "Bearer s3cret",
    ]
    assert page.evaluate("Object.values(sessionStorage)") == ["s3cret"]
    assert "s3cret" not in page.evaluate("JSON.stringify(localStorage) + document.cookie")


def test_answers_code_and_the_conversation_can_be_copied(api: FakeApi, new_page: NewPage) -> None:
    """With the browser's clipboard, and where it gives none to the page."""
    api.says("Yes:\n```\na = 1\n```")
    page = new_page(URL, serve=api, permissions=["clipboard-read", "clipboard-write"])
    asked(page)
    whole = page.get_by_role("button", name="Copy the conversation")
    for is_old in (False, True):
        if is_old:
            page.evaluate("navigator.clipboard.writeText = null")
        for button, text in (
            (page.locator(".code button"), "a = 1"),
            (page.locator(".copy"), "Yes:\n```\na = 1\n```"),
            (whole, "You:\nHello\n\nfake-1:\nYes:\n```\na = 1\n```"),
        ):
            page.evaluate("navigator.clipboard.write([new ClipboardItem({'text/plain': ''})])")
            button.evaluate("(button) => button.classList.remove('has-copied')")
            button.click()
            expect(button).to_contain_class("has-copied")
            assert page.evaluate("navigator.clipboard.readText()") == text


def test_a_stream_may_come_in_pieces_of_any_size(api: FakeApi, new_page: NewPage) -> None:
    """Letters and events cut anywhere: the text is the same."""
    text = "naïve 🙂 **größer**"
    page = new_page(URL, serve=api)
    shown = page.evaluate(
        """async ([sent]) => {
            const bytes = new TextEncoder().encode(sent);
            const body = new ReadableStream({
                start(controller) {
                    for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
                    controller.close();
                },
            });
            const pieces = [];
            for await (const { choices } of events({ body })) pieces.push(choices[0]?.delta?.content ?? "");
            return pieces.join("");
        }""",
        [stream(text)],
    )
    assert shown == text
