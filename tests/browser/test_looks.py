"""Test the layout and accessibility of every view, and that a hostile book or query runs, loads and injects nothing."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.hostile import ATTACKS
from tests.browser.webui import PHONE, SAMPLE_PAGE, WebUI, invisible_focus, problems
from tests.server.http.service import Service

VIEWS: dict[str, dict[str, object]] = {
    "contents": {},
    "results": {"q": "What is ROS 2?", "top_k": 30},
    "noise_floor": {"q": "best pizza recipe in town", "module": "simulation"},
    "page": {"q": "nodes", "page": SAMPLE_PAGE, "anchor": "workspaces"},
    "related": {"page": SAMPLE_PAGE, "selection": "removes a single point of failure", "q": "nodes"},
    "health": {"view": "health"},
    "filtered out": {"q": "nodes", "module": "a-module-with-a-very-long-name-that-nobody-would-choose"},
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
        ui.reload()
        assert is_dark(ui) is (scheme != "dark")


def test_reduced_motion(browser: Browser, service: Service) -> None:
    with WebUI(browser, service.port, reduced_motion="reduce") as ui:
        ui.open(q="nodes")
        ui.page.locator("#list").evaluate("list => list.setAttribute('aria-busy', 'true')")
        moving = "document.getAnimations().map(one => one.animationName ?? one.transitionProperty)"
        assert ui.page.evaluate(moving) == []
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
    ui.page.on("response", lambda answer: sizes.update({answer.url: len(answer.body())}))
    ui.open()
    ui.page.wait_for_load_state("networkidle")
    files = [size for url, size in sizes.items() if "/v1/" not in url]
    assert len(files) > 10
    assert sum(files) < 107_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_views_are_accessible(browser: Browser, service: Service, scheme: Literal["light", "dark"]) -> None:
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
    told = r"Passages: The book does not seem to cover this\. \d+ passages on \d+ pages"
    expect(live).to_contain_text(re.compile(told))
    ui.unfold()
    ui.links.first.click()
    expect(live).to_contain_text("Page: ")
    ui.page.get_by_role("link", name="Health").click()
    expect(live).to_contain_text("A sample search works. 2 things to do.")


PAGES = ("01-titles", "02-links", "03-code")
QUERIES = (
    ATTACKS[1],
    '"><svg onload=window.ran=1>',
    "javascript:window.ran=1",
    "](javascript:window.ran=1)",
    "(((((.*+?^${}|[\\",
)
_INJECTED = """
[...document.querySelectorAll("script, iframe, img, object, embed, base, style, link, meta[http-equiv], form, animate")]
    .filter(one => !["static/theme.js", "static/main.js"].includes(one.getAttribute("src")))
    .filter(one => !/^static\\//.test(one.getAttribute("href") ?? ""))
    .filter(one => one.id !== "search" && one.getAttribute("method") !== "dialog")
    .map(one => one.outerHTML)
"""
_HANDLERS = """
[...document.querySelectorAll("*:not(:root, #related-tool)")].flatMap(one => [...one.attributes].map(({ name }) => name)).filter(name => /^on|^style$/i.test(name))
"""
_SCHEMES = "[...new Set([...document.querySelectorAll('[href]')].map(one => new URL(one.getAttribute('href'), location.href).protocol))]"


def nothing_ran(ui: WebUI) -> None:
    page = ui.page
    assert page.evaluate("window.ran") is None
    assert page.evaluate(_INJECTED) == []
    # The page itself sets the height of the header and the position of the floating button.
    assert page.evaluate(_HANDLERS) == []
    assert set(page.evaluate(_SCHEMES)) <= {"http:", "https:"}
    assert page.evaluate("location.origin") == ui.origin
    expect(page.locator("body")).to_be_visible()


@pytest.mark.parametrize("name", PAGES)
def test_a_hostile_page_is_shown_as_text(ui: WebUI, name: str) -> None:
    ui.open(collection="hostile", q="poison", page=f"local://docs/docs/module-1-danger/{name}")
    expect(ui.page.locator("#page-panel .chunk").first).to_be_visible()
    nothing_ran(ui)
    for link in ui.page.locator("#page-panel .text a").all():
        address = link.get_attribute("href") or ""
        assert address.startswith(("https://elsewhere.invalid/", "?")), address
        assert link.get_attribute("rel") == "noopener noreferrer" or address.startswith("?")
    ui.unfold()
    ui.results.locator("button").evaluate_all("all => all.forEach(one => one.click())")
    nothing_ran(ui)
    text = ui.page.locator("#page-panel").inner_text()
    assert "window.ran" in text


def test_a_hostile_title_is_shown_as_text(ui: WebUI) -> None:
    ui.open(collection="hostile")
    expect(ui.page.locator(".contents a").first).to_have_text(f"Poison {ATTACKS[0]}")
    nothing_ran(ui)
    ui.ask("the poison of a heading")
    nothing_ran(ui)
    ui.unfold()
    ui.links.first.click()
    expect(ui.page.locator(".chunk.current")).to_be_visible()
    nothing_ran(ui)
    ui.page.locator(".chunk.current").get_by_role("button").click()
    expect(ui.page.get_by_role("heading", name="Related passages")).to_be_visible()
    ui.settle()
    nothing_ran(ui)


@pytest.mark.parametrize("attack", QUERIES)
def test_a_hostile_query_is_shown_as_text(ui: WebUI, attack: str) -> None:
    ui.open()
    ui.ask(attack)
    ui.unfold()
    expect(ui.results.first).to_be_visible()
    nothing_ran(ui)
    names = ("q", "module", "url", "page", "anchor", "selection")
    ui.open(collection="hostile", **dict.fromkeys(names, attack))
    expect(ui.page.locator("#list .notice")).to_contain_text("The filters exclude every passage.")
    expect(ui.page.locator("#page-panel .notice")).to_be_visible()
    nothing_ran(ui)


_UNSAFE_HTML = """
<p onclick="window.ran = 1" style="color: red" id="q">text <script>window.ran = 1</script></p>
<img src="x" onerror="window.ran = 1"><svg onload="window.ran = 1"></svg><iframe src="javascript:1"></iframe>
<p><a href="javascript:window.ran = 1">link</a> <a href="//elsewhere.invalid/">other</a></p>
"""


def test_the_page_accepts_only_known_elements_of_html(ui: WebUI) -> None:
    """The browser checks the service's HTML again."""

    def replace(route: Route) -> None:
        page = route.fetch().json()
        for chunk in page["chunks"]:
            chunk["html"] = _UNSAFE_HTML
        route.fulfill(json=page)

    ui.page.route("**/v1/pages/local*", replace)
    ui.open(page=SAMPLE_PAGE)
    expect(ui.page.locator("#page-panel .chunk").first).to_contain_text("text window.ran = 1")
    nothing_ran(ui)
    assert ui.page.locator("#page-panel .body a").count() == 0
    assert ui.page.locator("#page-panel .body [id]").count() == 0
    ui.page.evaluate("window.violations.splice(0)")  # the policy applies to the parsed document, too
    assert {line for line in ui.wrong if "Content Security Policy" not in line} == set()
    ui.wrong.clear()


def test_the_content_security_policy_blocks_injected_elements(ui: WebUI) -> None:
    ui.open()
    policy = ui.page.evaluate("fetch('/').then(answer => answer.headers.get('content-security-policy'))")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    ui.page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.ran = 1";
            document.body.append(script);
            const style = document.createElement("style");
            style.textContent = "body { color: red }";
            document.head.append(style);
        }"""
    )
    assert ui.page.evaluate("window.ran") is None
    assert sorted(ui.page.evaluate("window.violations.splice(0).map(one => one.split(' ')[0])")) == [
        "script-src-elem",
        "style-src-elem",
    ]
    ui.page.wait_for_timeout(0)  # the console messages have arrived by now
    ui.wrong.clear()
