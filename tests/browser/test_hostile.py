"""Test a hostile book and hostile queries: nothing runs, loads or is injected."""

from __future__ import annotations

import pytest
from playwright.sync_api import Route, expect

from tests.browser.hostile import ATTACKS
from tests.browser.webui import SAMPLE_PAGE, WebUI

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
    ui.open(
        collection="hostile", **dict.fromkeys(("q", "module", "url", "page", "anchor", "selection"), attack)
    )
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
