"""Test what the page shows of the book: its title and logo, and its modules in one order everywhere."""

from __future__ import annotations

import re
from base64 import b64encode
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from recto.settings import Settings
from tests.browser.hostile import ATTACKS
from tests.browser.test_hostile import nothing_ran
from tests.browser.webui import PHONE, SAMPLE_PAGE, SAMPLE_TITLE, WIDE, WebUI
from tests.server.http.service import Service

_LOGO = '<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16"><rect width="16" height="16"/></svg>'
_HOSTILE_LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" onload="parent.ran = 1"><script>parent.ran = 2</script></svg>'
)
_HIDDEN_BY_HEADER = """
() => {
    if (document.querySelector("#top").contains(document.activeElement)) return false;
    const header = document.querySelector("#top").getBoundingClientRect();
    const focused = document.activeElement.getBoundingClientRect();
    return header.top !== 0 || focused.top < header.bottom || focused.bottom > innerHeight;
}
"""


def test_the_book_is_named_and_its_modules_have_one_order(ui: WebUI, service: Service) -> None:
    modules = [module["title"] for module in service.get("/v1/modules").json()["modules"]]
    logo = f"data:image/svg+xml;base64,{b64encode(_LOGO.encode()).decode()}"
    book = {"name": "humanoid_robotics_book", "default": True, "title": "The Voyage", "logo": logo}
    page = ui.page
    page.route("**/v1/collections", lambda route: route.fulfill(json={"collections": [book]}))
    ui.open()
    expect(page.get_by_role("heading", level=1)).to_have_text("The Voyage")
    assert page.title() == "The Voyage"
    assert page.locator("#logo").evaluate("image => image.decode().then(() => image.naturalWidth)") == 16
    assert page.locator(".contents h3").all_text_contents() == modules
    ui.open_filters()
    filters = page.locator(".module-filter > span").evaluate_all("all => all.map(one => one.firstChild.data)")
    groups = page.locator("#page-filter optgroup").evaluate_all("all => all.map(one => one.label)")
    assert filters == groups == modules
    ui.open(view="health")
    assert page.title() == "Health · The Voyage"
    ui.open(page=SAMPLE_PAGE)
    expect(page.locator("#page-panel .module")).to_have_text(re.compile("^Module 1: ROS 2"))
    assert page.title() == "ROS 2 Fundamentals · The Voyage"


@pytest.mark.parametrize(
    "logo",
    [
        f"data:image/svg+xml;base64,{b64encode(_HOSTILE_LOGO.encode()).decode()}",
        "data:text/html,<script>parent.ran = 3</script>",
        "https://elsewhere.invalid/logo.png",
        "javascript:window.ran = 4",
    ],
)
def test_a_hostile_title_and_logo(ui: WebUI, logo: str) -> None:
    book = {"name": "x", "default": True, "title": ATTACKS[1], "logo": logo}
    ui.page.route("**/v1/collections", lambda route: route.fulfill(json={"collections": [book]}))
    ui.open()
    expect(ui.page.locator("#book-title")).to_have_text(ATTACKS[1])
    images = ui.page.locator("#logo, #icon[href^='data:']")
    expect(images).to_have_count(2 if logo.startswith("data:image/") else 0)
    images.evaluate_all("all => all.forEach(one => one.remove())")
    nothing_ran(ui)


@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_the_header_stays_and_hides_nothing(browser: Browser, books: Path, size: tuple[int, int]) -> None:
    """With several books, the header of a phone has two lines."""
    settings = Settings("local", "edge", books, threads=1, precision="fp32")
    with Service(settings) as service, WebUI(browser, service.port, size, reduced_motion="reduce") as ui:
        ui.open(q="nodes", page=SAMPLE_PAGE, anchor="workspaces", chunk=99)
        expect(ui.page.locator("#book-title")).to_have_text(SAMPLE_TITLE)
        expect(ui.page.locator("#top")).to_be_in_viewport()
        expect(ui.page.locator(".chunk.current")).to_be_in_viewport()
        assert not ui.page.evaluate(
            "document.querySelector('.chunk.current').getBoundingClientRect().top"
            " < document.querySelector('#top').getBoundingClientRect().bottom"
        )
        ui.open(q="nodes", top_k=20)
        ui.unfold()
        ui.links.last.focus()
        for key in ("ArrowUp",) * 30 + ("Shift+Tab",) * 10:
            ui.page.keyboard.press(key)
            assert not ui.page.evaluate(_HIDDEN_BY_HEADER), ui.focused()
