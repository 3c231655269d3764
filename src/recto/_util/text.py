"""Helpers for text that several packages share."""

from __future__ import annotations


def encodable(text: str) -> str:
    """Replace lone surrogates by `?`: UTF-8 cannot encode them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def with_anchor(page: str, anchor: str) -> str:
    """Return `page#anchor`, or the page alone if there is no anchor."""
    return f"{page}#{anchor}" if anchor else page


def without_space(text: str) -> str:
    """Remove all white space, so that two copies of a text compare equal however they are wrapped."""
    return "".join(text.split())


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, singular or plural."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
