"""From a phone to a wide screen, light and dark, moving and still, on screen and on paper."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.desk import PHONE, SAMPLE_PAGE, Desk
from tests.server.http.service import Service

VIEWS: dict[str, dict[str, object]] = {
    "contents": {},
    "results": {"q": "What is ROS 2?", "limit": 30},
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
    const outside = (one) => one.checkVisibility() && !one.closest("pre, .table, .unseen") && one.getBoundingClientRect().right > width + 1;
    const wide = [...document.querySelectorAll("body *")].filter(outside).map(one => one.outerHTML.slice(0, 100));
    return document.documentElement.scrollWidth > width ? ["the page scrolls", ...wide] : wide;
}
"""


def test_nothing_is_wider_than_a_phone(browser: Browser, service: Service) -> None:
    with Desk(browser, service.port, PHONE, is_mobile=True, has_touch=True) as desk:
        for name, state in VIEWS.items():
            desk.open(**state)
            assert desk.page.evaluate(_WIDER) == [], name


def test_on_a_phone_one_thing_is_shown_at_a_time(browser: Browser, service: Service) -> None:
    with Desk(browser, service.port, PHONE, is_mobile=True, has_touch=True) as desk:
        desk.open(q="What is a ROS 2 node?")
        desk.links.first.tap()
        here = desk.page.locator(".passage.here")
        expect(here).to_be_in_viewport()
        expect(desk.page.locator("#verso")).to_be_hidden()
        expect(desk.page.locator("#close-page")).to_be_in_viewport()  # however far the page is scrolled
        here.get_by_role("button", name="Passages related to").tap()
        expect(desk.page.get_by_role("heading", name="Related passages")).to_be_visible()
        expect(desk.page.locator("#recto")).to_be_hidden()
        desk.page.get_by_role("link", name="Close related passages").tap()
        expect(here).to_be_in_viewport()
        desk.page.locator("#close-page").tap()
        expect(desk.links.first).to_be_focused()


def ground(desk: Desk) -> list[int]:
    colour: str = desk.page.evaluate("getComputedStyle(document.body).backgroundColor")
    return [int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_system_chooses_light_or_dark_until_the_reader_does(
    browser: Browser, service: Service, scheme: Literal["light", "dark"]
) -> None:
    with Desk(browser, service.port, scheme=scheme) as desk:
        desk.open()
        button = desk.page.get_by_role("button", name="Dark")
        expect(button).to_have_attribute("aria-pressed", str(scheme == "dark").lower())
        assert (sum(ground(desk)) < 150) is (scheme == "dark")
        button.click()
        expect(button).to_have_attribute("aria-pressed", str(scheme != "dark").lower())
        assert (sum(ground(desk)) < 150) is (scheme != "dark")
        desk.page.reload()
        desk.settle()
        assert (sum(ground(desk)) < 150) is (scheme != "dark")


def test_nothing_moves_for_readers_who_do_not_want_it(browser: Browser, service: Service) -> None:
    with Desk(browser, service.port, reduced_motion="reduce") as desk:
        desk.open(q="nodes")
        desk.page.locator("#list").evaluate("list => list.setAttribute('aria-busy', 'true')")
        moving: list[Any] = desk.page.evaluate(
            "document.getAnimations().map(one => one.animationName ?? one.transitionProperty)"
        )
        assert moving == []
        assert desk.page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


def test_paper_has_the_words_alone(desk: Desk) -> None:
    desk.open(q="nodes", page=SAMPLE_PAGE)
    desk.page.emulate_media(media="print", color_scheme="dark")
    expect(desk.page.locator("#recto .passage").first).to_be_visible()
    for control in ("#search", ".tools", ".relate", "#close-page", ".turning"):
        expect(desk.page.locator(control).first).to_be_hidden()
    assert (
        desk.page.evaluate("getComputedStyle(document.querySelector('.passage p')).color")
        == "rgb(38, 34, 29)"
    )


def test_the_page_is_light(desk: Desk) -> None:
    sizes: dict[str, int] = {}
    desk.page.on(
        "response",
        lambda answer: sizes.update({answer.url: len(answer.body())}) if "/v1/" not in answer.url else None,
    )
    desk.open()
    desk.page.wait_for_load_state("networkidle")
    assert len(sizes) > 10
    assert sum(sizes.values()) < 100_000
