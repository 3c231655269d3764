"""Read a report as a browser does, and hold it to what every report promises."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from selectolax.lexbor import LexborHTMLParser, LexborNode

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOSTILE = (
    """</title></style><script>alert(1)</script><img src=x onerror=alert(2)>" onload='x' &lt;b&gt; ]]>"""
)
TRICKS = "\x00\x1b[31m\u202e\ud800\x85"
"""What no page may hold: controls, a turn of direction, half a character."""

ALLOWED = """
html head meta title style body header nav main footer section article h1 h2 h3 p a ul ol li dl dt dd div span b
small bdi time details summary table caption thead tbody tr th td svg line circle rect
"""


def nodes(tree: LexborHTMLParser, selector: str = "*") -> list[LexborNode]:
    return list(tree.css(selector))


def one(node: LexborHTMLParser | LexborNode, selector: str) -> LexborNode:
    found = node.css_first(selector)
    assert found is not None, selector
    return found


def read(page: str) -> LexborHTMLParser:
    """Parse a page and check that it is whole, loads nothing, runs nothing, and can be used without eyes."""
    tree = LexborHTMLParser(page)
    assert page.startswith("<!DOCTYPE html>\n<html lang=")
    assert {node.tag for node in nodes(tree) if node.tag} <= set(ALLOWED.split())
    page.encode("utf-8")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
    for node in nodes(tree):
        names = set(node.attributes)
        assert not {name for name in names if name.startswith("on")} | (
            names & {"src", "srcset", "style", "action", "xlink:href"}
        )
    style = one(tree, "style").text()
    assert "url(" not in style
    assert "@import" not in style
    for link in nodes(tree, "[href]"):
        address = link.attributes["href"] or ""
        assert address.startswith(("#", "http://", "https://"))
        if address.startswith("#"):
            assert tree.css_first(f'[id="{address[1:]}"]') is not None, address
        else:
            assert "noopener" in (link.attributes["rel"] or "")
    identifiers = [node.attributes["id"] for node in nodes(tree, "[id]")]
    assert len(identifiers) == len(set(identifiers))
    assert all(len(nodes(tree, tag)) == 1 for tag in ("h1", "main", "header", "footer", "head > title"))
    for drawing in nodes(tree, "svg"):
        assert drawing.attributes["role"] == "img"
        assert one(drawing, "title").text().strip()
    for table in nodes(tree, "table"):
        assert one(table, "caption").text().strip()
        widths = {len(row.css("th, td")) for row in table.css("tr")}
        assert len(widths) == 1, "each row has a cell for each column"
        assert "box" in (table.parent.attributes["class"] or "") if table.parent else False
    return tree


def said(tree: LexborHTMLParser, selector: str = "body") -> str:
    """The text of a part, in one line."""
    return " ".join(" ".join(node.text(separator=" ") for node in nodes(tree, selector)).split())
