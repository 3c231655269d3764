"""The order of modules and pages in the outline of a book."""

from __future__ import annotations

from dataclasses import replace

from recto.search.outline import outline_of
from recto.testing.values import chunk


def test_modules_are_in_reading_order_and_landing_pages_first() -> None:
    sources = [
        ("zoo", "zoo/animals.md"),
        ("zoo", "zoo/cats/lion.md"),
        ("zoo", "zoo/cats/README.md"),
        ("zoo", "zoo/birds.md"),
        ("zoo", "zoo/birds/owl.md"),
        ("zoo", "zoo/index.mdx"),
        ("art", "art/01-colours.md"),
        ("art", "art/02-intro.md"),
        ("new", "new/indexes.md"),
        ("new", "new/a-page.md"),
    ]
    chunks = [
        replace(chunk(0, module=module, page=source.removesuffix(".md")), source=source)
        for module, source in sources
    ]
    outline = outline_of(chunks, [("zoo", "The zoo"), ("art", "")])
    assert [page.source for page in outline.pages] == [
        "zoo/index.mdx",
        "zoo/animals.md",
        "zoo/birds.md",
        "zoo/birds/owl.md",
        "zoo/cats/README.md",
        "zoo/cats/lion.md",
        "art/02-intro.md",
        "art/01-colours.md",
        "new/a-page.md",
        "new/indexes.md",
    ]
    assert outline.titles == {"zoo": "The zoo"}
    assert [page.source for page in outline.of_module("art").pages] == [
        "art/02-intro.md",
        "art/01-colours.md",
    ]
