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
            expect(visitor.page.locator(f"[id='{anchor}']")).to_be_in_viewport()
        visitor.select(TEXT[site.name])
        visitor.page.locator("button.related").click()
        expect(visitor.panel.locator("a.hit").first).to_be_visible()
        assert violations(visitor, axe) == []
