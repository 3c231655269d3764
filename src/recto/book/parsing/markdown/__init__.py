"""Markdown and MDX: from a page's source to its sections."""

from recto.book.parsing.markdown.reader import parse

__all__ = ["parse"]
