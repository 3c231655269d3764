"""Test that pages are put together from their chunks as they were written, and their order in the outline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recto.book.chunking import ChunkSize, chunk_page
from recto.book.parsing import read
from recto.search.pages import BookPage, outline_of
from recto.testing.parts import chunk
from recto.types.book import Page

ROWS = "\n".join(f"| pin {number} | the signal number {number} of the controller |" for number in range(40))
CODE = "\n".join(f"motor_{one} = controller.open({one})" + "\n" * (one % 7 == 0) for one in range(60))
ITEMS = "\n".join(f"- step {number}: turn the joint by {number} degrees" for number in range(40))
LINES = "\n".join(f"Line {number} of a paragraph has some words. It goes on." for number in range(30))
LONG = " ".join(f"Sentence {number} of one long line tells about robots." for number in range(40))

BOOK = {
    "table": f"Before.\n\n| pin | signal |\n|---|---|\n{ROWS}\n\nAfter.",
    "code": f"Before.\n\n```python\n{CODE}\n```\n\nAfter.",
    "two fences": "\n\n".join(f"```python\n{CODE[start : start + 700].strip()}\n```" for start in (0, 700)),
    "a split fence and a whole one": f"```python\n{CODE}\n```\n\n```python\n{CODE[:900].strip()}\n```",
    "a long row": f"| pin | signal |\n|---|---|\n| pin 1 | {LONG} |\n| pin 2 | none |",
    "two tables": f"| pin | signal |\n|---|---|\n{ROWS}\n\n| pin | signal |\n|---|---|\n{ROWS}",
    "list": f"{ITEMS}\n\nAfter.",
    "paragraph": f"{LINES}\n\nAnother paragraph.",
    "one line": f"{LONG}\n\nAnother paragraph.",
    "sections": f"Intro.\n\n## First\n\n{LONG}\n\n## Second\n\nText.\n\n### Third\n\n{ITEMS}",
}


def page_of(text: str, path: str = "page.md") -> BookPage:
    """Read a page, and split it into small chunks; words count as tokens."""
    page = Page(path, "local://page", "", "intro", ("intro",), text, "1")
    document = read(page)
    inputs = chunk_page(page, document, "book", lambda part: len(part.split()), 80, ChunkSize(80))
    chunks = tuple(one.chunk for one in inputs)
    return BookPage(page.url, document.title, page.module, chunks)


@pytest.mark.parametrize("name", BOOK)
def test_markdown_is_what_was_written(name: str) -> None:
    written = f"# A page\n\n{BOOK[name]}"
    page = page_of(written)
    assert len(page.chunks) > 1
    assert page.markdown() == written


def test_what_has_no_lines_of_its_own_stays_apart() -> None:
    """Blocks of HTML may share a line, so the lines do not tell whether a block goes on."""
    chunks = page_of(f"# A page\n\n{LONG}").chunks
    page = BookPage("", "", "", tuple(replace(chunk, source="https://example.org/page") for chunk in chunks))
    assert page.markdown() == "\n\n".join(("# A page", *(chunk.text for chunk in chunks)))


def test_modules_are_in_reading_order_and_landing_pages_first() -> None:
    pages = (
        "zoo/index.mdx zoo/animals.md zoo/birds.md zoo/birds/owl.md zoo/cats/README.md zoo/cats/lion.md "
        "art/02-intro.md art/01-colours.md new/a-page.md new/indexes.md"
    )
    expected = pages.split()
    stored = [expected[number] for number in (1, 5, 4, 2, 3, 0, 7, 6, 9, 8)]
    chunks = [
        replace(chunk(0, module=source.partition("/")[0], page=source.removesuffix(".md")), source=source)
        for source in stored
    ]
    outline = outline_of(chunks, [("zoo", "The zoo"), ("art", "")])
    assert [page.source for page in outline.pages] == expected
    assert outline.titles == {"zoo": "The zoo"}
    assert [page.source for page in outline.of_module("art").pages] == expected[6:8]
