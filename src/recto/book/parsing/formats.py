"""The formats that pages are written in: their file suffixes and their readers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recto.book.parsing.document import Document
from recto.types import Page

Reader = Callable[[Page], Document]


@dataclass(frozen=True, slots=True)
class Format:
    """A page format; `Page.format` is its name. A format without suffixes is not read from files."""

    name: str
    suffixes: tuple[str, ...]
    read: Reader


def _read_markdown(page: Page) -> Document:
    from recto.book.parsing.markdown import parse

    return parse(page.text, title=page.title, mdx=page.format == MDX.name, anchors=page.anchors)


def _read_html(page: Page) -> Document:
    from recto.book.parsing.html import parse_html

    return parse_html(page.text, title=page.title, url=page.url)


MARKDOWN = Format("markdown", (".md", ".markdown", ".mdown", ".mkdn", ".mkd"), _read_markdown)
MDX = Format("mdx", (".mdx",), _read_markdown)
HTML = Format("html", (), _read_html)  # pages of websites; HTML files beside Markdown are build output
_FORMATS = {format.name: format for format in (MARKDOWN, MDX, HTML)}


def register_format(format: Format) -> None:
    """Add a format, or replace the one of the same name; its suffixes win over those of earlier formats."""
    _FORMATS[format.name] = format


def formats() -> tuple[Format, ...]:
    """Return all formats."""
    return tuple(_FORMATS.values())


def page_suffixes() -> tuple[str, ...]:
    """Return the suffixes of all files that can be pages."""
    return tuple(dict.fromkeys(suffix for format in formats() for suffix in format.suffixes))


def format_of(name: str) -> Format | None:
    """Return the format of a file by its suffix, in any case; None if the file cannot be a page."""
    found = (format for format in reversed(formats()) if name.lower().endswith(format.suffixes))
    return next(found, None)


def read(page: Page) -> Document:
    """Parse a page with the reader of its format."""
    return _FORMATS[page.format].read(page)
