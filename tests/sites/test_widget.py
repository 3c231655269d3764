"""Test the widget on real sites, built and served as published: with a service behind them, and without a server."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.hostile import ATTACKS
from tests.running import ROOT
from tests.sites.serving import PublishedSite, policy
from tests.sites.test_plugins import script_of
from tests.sites.visitor import Visitor

QUERY = "When are beans sown?"
BEANS = {"docusaurus": "module-1-garden/seeds/", "mkdocs": "module-1-garden/02-seeds/"}
BREAD = {"docusaurus": "module-2-kitchen/bread/", "mkdocs": "module-2-kitchen/01-bread/"}
TEXT = {"docusaurus": "article .markdown > p", "mkdocs": "article > p"}
TOGGLE = {"docusaurus": "button[class*=toggleButton]", "mkdocs": "label[for^=__palette]:not([hidden])"}
NEXT_PAGE = {"docusaurus": ".pagination-nav__link--next", "mkdocs": ".md-nav--primary a[href*=soup]"}


def make_dark(visitor: Visitor, site: PublishedSite) -> None:
    """Switch to dark colours: in Docusaurus from "like the system" to "light" to "dark"."""
    for _ in range(2 if site.name == "docusaurus" else 1):
        visitor.page.locator(TOGGLE[site.name]).first.click()


def test_search_opens_the_section_of_the_published_page(visitor: Visitor, site: PublishedSite) -> None:
    visitor.visit()
    visitor.search(QUERY)
    option = visitor.options.first
    expect(option).to_contain_text("Sowing beans")
    expect(option.locator("mark").first).to_be_visible()
    address = str(option.get_attribute("href"))
    assert address.startswith(f"{site.url}{BEANS[site.name]}#sowing-beans:~:text=")
    visitor.field.press("Enter")
    expect(visitor.page).to_have_url(f"{site.url}{BEANS[site.name]}#sowing-beans")
    heading = visitor.page.locator("#sowing-beans")
    expect(heading).to_contain_text("Sowing beans")
    expect(heading).to_be_in_viewport()
    expect(visitor.dialog).to_be_hidden()


def test_the_widget_stays_when_the_page_changes(visitor: Visitor, site: PublishedSite) -> None:
    """Both sites replace the content of the page instead of loading another one."""
    visitor.visit(BREAD[site.name])
    visitor.search(QUERY)
    visitor.page.keyboard.press("Escape")
    visitor.page.evaluate("window.isSamePage = true")
    before = visitor.page.url
    visitor.page.locator(NEXT_PAGE[site.name]).first.click()
    expect(visitor.page).not_to_have_url(before)
    visitor.page.keyboard.press("Control+k")
    expect(visitor.field).to_be_focused()
    visitor.page.keyboard.press("Escape")
    expect(visitor.page.locator("recto-widget")).to_have_count(1)
    visitor.select(TEXT[site.name])
    expect(visitor.page.locator("button.related")).to_be_visible()
    assert visitor.page.evaluate("window.isSamePage")


def test_a_file_that_adds_the_tag(visitor: Visitor, site: PublishedSite) -> None:
    """As the guide for learning platforms shows it."""
    guide = (ROOT / "docs" / "how-to" / "lms.md").read_text("utf-8")
    (code,) = re.findall(r"^```js\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    code = code.replace("https://search.example.org", "/recto").replace("recto_pk_…", site.key)

    index = (site.files / "index.html").read_text("utf-8")
    page = re.sub(r"<script [^>]*widget\.js[^>]*></script>", "", index)
    headers = {"Content-Type": "text/html", "Content-Security-Policy": policy(page.encode())}
    visitor.page.route(site.url, lambda route: route.fulfill(body=page, headers=headers))
    visitor.visit()
    visitor.page.evaluate(f"() => {{ {code.replace('my-book', site.collection)} }}")
    visitor.page.wait_for_load_state("networkidle")
    visitor.search(QUERY)
    expect(visitor.options.first).to_contain_text("Sowing beans")


def violations(visitor: Visitor, axe: str) -> list[str]:
    """Return what axe finds wrong with the widget and the button that opens it."""
    found: list[str] = visitor.page.evaluate(
        axe
        + """;axe.run({ include: [["recto-widget"], ["[data-recto-open]"]] }).then(({ violations }) =>
            violations.map(({ id, nodes }) => id + ": " + nodes.map(({ html, failureSummary }) => html + " " + failureSummary).join("; ")))"""
    )
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser: Browser, site: PublishedSite, axe: str, scheme: str) -> None:
    with Visitor(browser, site) as visitor:
        visitor.visit(BREAD[site.name])
        if scheme == "dark":
            make_dark(visitor, site)
        visitor.search(QUERY)
        assert violations(visitor, axe) == []
        visitor.page.keyboard.press("Escape")
        visitor.select(TEXT[site.name])
        visitor.page.locator("button.related").click()
        expect(visitor.panel.locator("a.hit").first).to_be_visible()
        assert violations(visitor, axe) == []


def test_hostile_content_is_shown_as_text(visitor: Visitor, site: PublishedSite) -> None:
    def nothing_ran() -> None:
        assert visitor.page.evaluate("window.ran") is None
        selector = "script, iframe, img, object, embed, base, link, meta, form:not(.ask), animate, style"
        code = "(host, selector) => [...host.shadowRoot.querySelectorAll(selector)].map(one => one.outerHTML)"
        assert visitor.page.locator("recto-widget").evaluate(code, selector) == []

    visitor.visit()
    visitor.search("the antidote to poison")
    expect(visitor.options.first).to_contain_text("Antidote")
    nothing_ran()
    for attack in ATTACKS:
        visitor.field.fill(attack)
        visitor.settle_search()
        nothing_ran()
    visitor.page.keyboard.press("Escape")
    visitor.visit("module-4-danger/poison/")
    visitor.select(TEXT[site.name])
    visitor.page.locator("button.related").click()
    expect(visitor.panel.locator("a.hit").first).to_be_visible()
    nothing_ran()


QUESTIONS = {
    "docusaurus-static": {
        "When are beans sown?": "module-1-garden/seeds/#sowing-beans",
        "how do I mend a puncture": "module-3-workshop/bicycles/#flat-tyres",
    },
    "recto": {
        "how do I publish search without a server": "how-to/widget/#search-without-a-server",
        "which environment variable turns on answers from a language model": "how-to/answers/#turn-answers-on",
        "let an AI assistant use the book as a tool": "how-to/mcp/#",
    },
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_site_search(browser: Browser, sites: dict[str, PublishedSite], axe: str, name: str) -> None:
    site = sites[name]
    assert script_of(site.files / "index.html")["src"] == f"{site.path}recto/widget.js"
    with Visitor(browser, site) as visitor:
        visitor.visit()
        visitor.search("who won the football match on sunday")
        expect(visitor.dialog).to_contain_text("The book does not seem to cover this.", timeout=60_000)
        assert violations(visitor, axe) == []
        for query, address in QUESTIONS[name].items():
            visitor.field.fill(query)
            option = visitor.dialog.locator(f'[role=option][href^="{site.url}{address}"]').first
            expect(option).to_be_visible()
        option.click()
        expect(visitor.page).to_have_url(re.compile(re.escape(site.url + address)))
    assert not site.requests, "there is no service"
