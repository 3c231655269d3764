"""Search sites without a server: Docusaurus with the plugin, and Recto's own documentation with MkDocs."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.sites.serving import PublishedSite
from tests.sites.test_plugins import script_of
from tests.sites.test_widget import violations
from tests.sites.visitor import Visitor

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
