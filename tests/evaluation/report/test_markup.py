"""A plain string is always text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from recto.evaluation.report.page import Markup, element, joined, number, place, safe, signed
from tests.evaluation.report.reading import HOSTILE, TRICKS


@given(st.text())
def test_any_text_stays_text(text: str) -> None:
    page = element("p", text, title=text)
    page.encode("utf-8")
    tree = LexborHTMLParser(f"<!DOCTYPE html><body>{page}</body>")
    assert [node.tag for node in tree.css("body *")] == ["p"]
    (found,) = tree.css("p")
    assert set(found.attributes) == {"title"}


def test_what_is_put_together_by_hand_is_text_again() -> None:
    inner = element("b", "x")
    assert element("p", f"{inner}") == "<p>&lt;b&gt;x&lt;/b&gt;</p>"
    assert element("p", inner) == "<p><b>x</b></p>"
    assert joined(("<", None, inner, "")) == "&lt;\n<b>x</b>"
    assert isinstance(joined(()), Markup)


def test_attributes() -> None:
    assert (
        element("a", "x", class_="c", aria_label='"', open=True, hidden=False, id=None)
        == '<a class="c" aria-label="&quot;" open>x</a>'
    )
    assert element("line", x1="0%", y1=1.5) == '<line x1="0%" y1="1.5"/>'


def test_controls_are_removed() -> None:
    assert safe(f"a{TRICKS}b") == "a[31mb"
    assert safe("a\tb\nc") == "a\tb\nc"


@pytest.mark.parametrize(
    "address",
    ["https://example.org/a?b=1&c=2#d", "http://localhost:3000/x", 'https://example.org/"><script>'],
)
def test_pages_on_the_web_are_linked(address: str) -> None:
    (link,) = LexborHTMLParser(place(address)).css("a")
    assert link.attributes == {"href": address, "rel": "noopener noreferrer"}
    assert link.text() == address


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "java\x00script:alert(1)",
        "data:text/html,x",
        "local://docs/docs/a",
        "//example.org",
        "https:",
        "https://[",
        "a/b",
    ],
)
def test_other_addresses_are_text(address: str) -> None:
    assert "href" not in place(address)


def test_numbers() -> None:
    assert (number(0.12349), number(-0.5), signed(0.1), signed(-0.1)) == (
        "0.123",
        "−0.500",
        "+0.100",
        "−0.100",
    )
    assert HOSTILE not in safe(HOSTILE)
