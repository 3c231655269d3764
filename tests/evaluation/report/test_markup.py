"""Text in a template is always text; only web addresses become links."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from recto.evaluation.report import environment


def link(address: str) -> str:
    return cast(str, environment().get_template("macros.html").make_module().link(address))  # type: ignore[attr-defined]


@given(st.text())
def test_any_text_stays_text(text: str) -> None:
    page = environment().from_string('<p title="{{ text }}">{{ text }}</p>').render(text=text)
    tree = LexborHTMLParser(f"<!DOCTYPE html><body>{page.encode('utf-8', 'replace').decode()}</body>")
    assert [node.tag for node in tree.css("body *")] == ["p"]
    (found,) = tree.css("p")
    assert set(found.attributes) == {"title"}


@pytest.mark.parametrize(
    "address",
    ["https://example.org/a?b=1&c=2#d", "http://localhost:3000/x", 'https://example.org/"><script>'],
)
def test_web_addresses_are_links(address: str) -> None:
    (found,) = LexborHTMLParser(link(address)).css("a")
    assert found.attributes == {"href": address, "rel": "noopener noreferrer"}
    assert found.text() == address


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "java\x00script:alert(1)", "data:text/html,x", "local://docs/docs/a", "//example.org",
     "https:", "https://[", "a/b"],
)  # fmt: skip
def test_other_addresses_are_text(address: str) -> None:
    assert "href" not in link(address)
