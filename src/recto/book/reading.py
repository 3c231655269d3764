"""Read a page of any format into one document."""

from __future__ import annotations

from recto.book.document import Document
from recto.types import Page


def read(page: Page) -> Document:
    """Return the sections of a page."""
    if page.format == "html":
        from recto.book.html import parse_html

        return parse_html(page.text, title=page.title, url=page.url)
    from recto.book.markdown import parse

    return parse(page.text, title=page.title, mdx=page.format == "mdx", anchors=page.anchors)
