"""A reader of a published site: opens its pages and uses the widget; console errors and violations fail a test."""

from __future__ import annotations

from typing import Any, Self

from playwright.sync_api import Browser, expect

from tests.browser.webui import WebUI
from tests.sites.serving import PublishedSite


class Visitor(WebUI):
    """A browser window on a site. Playwright looks into the shadow root of the widget by itself."""

    def __init__(self, browser: Browser, site: PublishedSite, **options: Any) -> None:
        super().__init__(browser, site.port, **options)
        self.origin = site.origin
        self.allowed = [f"{site.origin}/", "data:"]
        self.site = site

    def __enter__(self) -> Self:
        super().__enter__()
        self.opener = self.page.locator("[data-recto-open]")  # the button of the site
        self.dialog = self.page.locator("dialog.search")
        self.field = self.dialog.locator("input[role=combobox]")
        self.options = self.dialog.locator("[role=option]")
        self.panel = self.page.locator("aside.panel")
        return self

    def visit(self, path: str = "") -> None:
        """Open a page of the site."""
        self.page.goto(self.site.url + path)
        expect(self.opener).to_be_visible()

    def search(self, query: str) -> None:
        """Open the search by its button, type a query, and wait for the final results."""
        self.opener.click()
        expect(self.field).to_be_focused()
        self.field.fill(query)
        self.settle_search()

    def settle_search(self) -> None:
        expect(self.dialog.locator("[role=option], .message").first).to_be_visible()
        expect(self.page.locator("dialog.search.busy")).to_have_count(0)

    def select(self, selector: str) -> None:
        """Select the text of an element, as a reader does with the mouse."""
        self.page.locator(selector).first.evaluate(
            """element => {
                element.scrollIntoView({ block: "center" });
                document.getSelection().selectAllChildren(element);
            }"""
        )
