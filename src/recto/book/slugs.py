"""Anchors of headings, as the published page has them."""

from __future__ import annotations

import re
import unicodedata

_EXPLICIT = re.compile(r"\{#([^\s{}]+)\}|\{/\*\s*#([^\s{}*]+)\s*\*/\}")


def split_explicit_id(heading: str) -> tuple[str, str]:
    """Split a heading's source into its text and its explicit id, written `{#id}` or `{/* #id */}`."""
    text = heading.rstrip()
    start = text.rfind("{")
    found = _EXPLICIT.fullmatch(text, start) if start >= 0 else None
    return (text[:start].rstrip(), found[1] or found[2]) if found else (heading, "")


class Slugger:
    """Makes anchors by GitHub's rules and numbers those that repeat within one page."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def slug(self, heading: str) -> str:
        """Return the anchor of the next heading."""
        base = "".join(_kept(mark) for mark in heading.strip().lower())
        slug = base
        while slug in self._seen:
            self._seen[base] += 1
            slug = f"{base}-{self._seen[base]}"
        self._seen[slug] = 0
        return slug


def _kept(mark: str) -> str:
    """GitHub keeps letters, digits, marks, connectors and hyphens, turns a space into a hyphen and drops the rest."""
    if mark == " ":
        return "-"
    category = unicodedata.category(mark)
    return mark if mark == "-" or category[0] in "LM" or category in ("Nd", "Nl", "Pc") else ""
