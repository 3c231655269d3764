"""HTML: from a published page to the sections of its main content."""

from recto.book.parsing.html.reader import parse_html

__all__ = ["parse_html"]
