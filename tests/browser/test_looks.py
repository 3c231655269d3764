"""Test the layout (phone and wide screen, light and dark, print, size) and the accessibility of every view."""

from __future__ import annotations

import re
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.checks import invisible_focus, problems
from tests.browser.webui import PHONE, SAMPLE_PAGE, WebUI
from tests.server.http.service import Service

VIEWS: dict[str, dict[str, object]] = {
    "contents": {},
    "results": {"q": "What is ROS 2?", "top_k": 30},
    "noise_floor": {"q": "best pizza recipe in town", "module": "simulation"},
    "page": {"q": "nodes", "page": SAMPLE_PAGE, "anchor": "workspaces"},
    "related": {
        "page": SAMPLE_PAGE,
        "selection": "Losing the master removes a single point of failure",
        "q": "nodes",
    },
    "health": {"view": "health"},
    "filtered out": {
        "q": "nodes",
        "module": "a-module-with-a-very-long-name-that-nobody-would-choose-for-a-module",
    },
    "hostile": {"q": "poison", "collection": "hostile", "page": "local://docs/docs/module-1-danger/03-code"},
}
_WIDER = """
() => {
    const width = document.documentElement.clientWidth;
    const outside = (one) => one.checkVisibility() && !one.closest("pre, .table, .visually-hidden") && one.getBoundingClientRect().right > width + 1;
    const wide = [...document.querySelectorAll("body *")].filter(outside).map(one => one.outerHTML.slice(0, 100));
    return document.documentElement.scrollWidth > width ? ["the page scrolls", ...wide] : wide;
}
"""


def test_nothing_is_wider_than_a_phone(browser: Browser, service: Service) -> None:
    with WebUI(browser, service.port, PHONE, is_mobile=True, has_touch=True) as ui:
        for name, state in VIEWS.items():
            ui.open(**state)
            assert ui.page.evaluate(_WIDER) == [], name


def test_a_phone_shows_one_panel_at_a_time(browser: Browser, service: Service) -> None:
    with WebUI(browser, service.port, PHONE, is_mobile=True, has_touch=True) as ui:
        ui.open(q="What is a ROS 2 node?")
        ui.links.first.tap()
        here = ui.page.locator(".chunk.current")
        expect(here).to_be_in_viewport()
        expect(ui.page.locator("#list-panel")).to_be_hidden()
        expect(ui.page.locator("#close-page")).to_be_in_viewport()  # however far the page is scrolled
        here.get_by_role("button", name="Passages related to").tap()
        expect(ui.page.get_by_role("heading", name="Related passages")).to_be_visible()
        expect(ui.page.locator("#page-panel")).to_be_hidden()
        ui.page.get_by_role("link", name="Close related passages").tap()
        expect(here).to_be_in_viewport()
        ui.page.locator("#close-page").tap()
        expect(ui.links.first).to_be_focused()


def is_dark(ui: WebUI) -> bool:
    colour: str = ui.page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour))) < 150


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_until_it_is_chosen(
    browser: Browser, service: Service, scheme: Literal["light", "dark"]
) -> None:
    with WebUI(browser, service.port, scheme=scheme) as ui:
        ui.open()
        button = ui.page.get_by_role("button", name="Dark")
        expect(button).to_have_attribute("aria-pressed", str(scheme == "dark").lower())
        assert is_dark(ui) is (scheme == "dark")
        button.click()
        expect(button).to_have_attribute("aria-pressed", str(scheme != "dark").lower())
        assert is_dark(ui) is (scheme != "dark")
        ui.page.reload()
        ui.settle()
        assert is_dark(ui) is (scheme != "dark")


def test_reduced_motion(browser: Browser, service: Service) -> None:
    with WebUI(browser, service.port, reduced_motion="reduce") as ui:
        ui.open(q="nodes")
        ui.page.locator("#list").evaluate("list => list.setAttribute('aria-busy', 'true')")
        moving: list[Any] = ui.page.evaluate(
            "document.getAnimations().map(one => one.animationName ?? one.transitionProperty)"
        )
        assert moving == []
        assert ui.page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


def test_print_has_only_text(ui: WebUI) -> None:
    ui.open(q="nodes", page=SAMPLE_PAGE)
    ui.page.emulate_media(media="print", color_scheme="dark")
    expect(ui.page.locator("#page-panel .chunk").first).to_be_visible()
    for control in ("#search", ".tools", ".related-button", "#close-page", ".page-nav"):
        expect(ui.page.locator(control).first).to_be_hidden()
    assert ui.page.evaluate("getComputedStyle(document.querySelector('.chunk p')).color") == "rgb(38, 34, 29)"


def test_the_page_is_small(ui: WebUI) -> None:
    sizes: dict[str, int] = {}
    ui.page.on(
        "response",
        lambda answer: sizes.update({answer.url: len(answer.body())}) if "/v1/" not in answer.url else None,
    )
    ui.open()
    ui.page.wait_for_load_state("networkidle")
    assert len(sizes) > 10
    assert sum(sizes.values()) < 107_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_has_accessibility_problems(
    browser: Browser, service: Service, scheme: Literal["light", "dark"]
) -> None:
    with WebUI(browser, service.port, scheme=scheme, reduced_motion="reduce") as ui:
        for name, state in VIEWS.items():
            ui.open(**state)
            assert problems(ui.page) == [], name
            assert invisible_focus(ui.page) == [], name
        ui.page.get_by_role("button", name="Shortcuts").click()
        expect(ui.page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        assert problems(ui.page) == []


def test_changes_are_announced(ui: WebUI) -> None:
    ui.open(q="What is ROS 2?")
    live = ui.page.get_by_role("status")
    expect(live).to_contain_text(re.compile(r"Passages: \d+ passages on 10 pages$"))
    ui.ask("best pizza recipe in town")
    expect(live).to_contain_text(
        re.compile(r"Passages: The book does not seem to cover this\. \d+ passages on \d+ pages")
    )
    ui.unfold()
    ui.links.first.click()
    expect(live).to_contain_text("Page: ")
    ui.page.get_by_role("link", name="Health").click()
    expect(live).to_contain_text("A sample search works. 2 things to do.")


@pytest.mark.parametrize(
    ("locale", "direction", "label"),
    [("de-AT", "ltr", "Suchen"), ("ur", "rtl", "تلاش"), ("xx", "ltr", "Search")],
)
def test_texts_are_in_the_language_of_the_browser(
    browser: Browser, service: Service, locale: str, direction: str, label: str
) -> None:
    with WebUI(browser, service.port, locale=locale) as ui:
        ui.open(q="What is ROS 2?")
        expect(ui.page.locator("html")).to_have_attribute("dir", direction)
        expect(ui.page.locator("#search button[type=submit]")).to_have_text(label)
        expect(ui.page.locator(".list-head .note")).not_to_contain_text("{")
        overflow = ui.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not overflow
