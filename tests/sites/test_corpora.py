"""Test the widget on sites of real books, which RECTO_CORPORA names."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.sites.building import CORPORA
from tests.sites.serving import PublishedSite
from tests.sites.test_widget import TEXT, violations
from tests.sites.visitor import Visitor

QUERIES = {
    "docusaurus": (
        "How do I deploy to GitHub Pages?",
        "change the colours of the navbar",
        "write math in a page",
    ),
    "mkdocs": ("How do I forbid extra fields?", "parse a date from a string", "validate before conversion"),
}
_SHOWS_SECTION = """id => {
    const heading = document.getElementById(id);
    const headings = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")];
    const next = headings.find(one => heading.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING);
    const end = next ? next.getBoundingClientRect().top : Infinity;
    return heading.getBoundingClientRect().top < innerHeight && end > 0;
}"""
"""The window shows a part of the section: in a long one, the browser scrolls to the passage."""

pytestmark = pytest.mark.skipif(not CORPORA, reason="RECTO_CORPORA does not say where the real books are")


def test_read_a_real_book(visitor: Visitor, site: PublishedSite, axe: str) -> None:
    visitor.visit()
    for query in QUERIES[site.name]:
        visitor.search(query)
        option = visitor.options.first
        address = urlsplit(str(option.get_attribute("href")))
        anchor = address.fragment.partition(":~:")[0]
        assert violations(visitor, axe) == []
        visitor.field.press("Enter")
        expect(visitor.page).to_have_url(re.compile(re.escape(address.path)))
        if anchor:
            expect(visitor.page.locator(f"[id='{anchor}']")).to_be_attached()
            visitor.page.wait_for_function(_SHOWS_SECTION, arg=anchor)
        visitor.select(TEXT[site.name])
        visitor.page.locator("button.related").click()
        expect(visitor.panel.locator("a.hit").first).to_be_visible()
        assert violations(visitor, axe) == []
        visitor.page.keyboard.press("Escape")
        expect(visitor.panel).to_be_hidden()
        visitor.page.evaluate("window.violations = violations.filter(one => !one.startsWith('img-src'))")
    # The books themselves show images of other servers, which the policy blocks.
    visitor.wrong = [
        line for line in visitor.wrong if "img-src" not in line and "request to https:" not in line
    ]
