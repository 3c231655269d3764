"""Markdown and MDX: from a page's source to its sections."""

from recto.book.markdown.reader import parse

__all__ = ["parse"]
