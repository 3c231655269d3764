"""Anchors of headings, as Docusaurus and GitHub or Python-Markdown make them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Protocol

from recto.types import AnchorStyle

_EXPLICIT = re.compile(r"\{#([^\s{}]+)\}|\{/\*\s*#([^\s{}*]+)[^{}]*\*/\}|<!--\s*#([^\s<>]+?)(?:\s[^<>]*)?-->")
_ATTRIBUTES = re.compile(r"\{:?[ ]*([^}\n ][^}\n]*)[ ]*\}")
_ATTRIBUTE_ID = re.compile(r"(?:^|\s)(?:#|id=[\"']?)([^\s\"'}]+)")
_NUMBERED = re.compile(r"(.*)_([0-9]+)", re.DOTALL)
# Letters in circles and squares count as letters.
_CIRCLED = ((0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))


class Slugs(Protocol):
    """Makes the anchors of one page, in the order of its headings."""

    def slug(self, heading: str) -> str:
        """Return the anchor of the next heading that has no explicit id."""


def slugger(style: AnchorStyle, explicit: Iterable[str] = ()) -> Slugs:
    """Return the slugger of a page; `explicit` are the ids that its headings state."""
    return PythonMarkdownSlugger(explicit) if style == "python-markdown" else Slugger()


def split_explicit_id(heading: str, style: AnchorStyle = "github") -> tuple[str, str]:
    """Split a heading into its text and explicit id: `{#id}`, `{/* #id */}`, `<!-- #id -->`, `{: #id}`."""
    text = heading.rstrip()
    if style == "python-markdown" or text.endswith("}"):
        start = text.rfind("{")
        attributes = _ATTRIBUTES.fullmatch(text, start) if start > 0 and text[start - 1] == " " else None
        if attributes and (style == "python-markdown" or text.startswith("{:", start)):
            found = _ATTRIBUTE_ID.search(attributes[1])
            return text[:start].rstrip(), found[1] if found else ""
    start = max(text.rfind("{"), text.rfind("<!--"))
    explicit = _EXPLICIT.fullmatch(text, start) if start >= 0 else None
    return (text[:start].rstrip(), explicit[1] or explicit[2] or explicit[3]) if explicit else (heading, "")


class Slugger:
    """Makes anchors by GitHub's rules, as Docusaurus does; explicit ids do not count as duplicates."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def slug(self, heading: str) -> str:
        """Return the anchor of the next heading; white space at its ends counts, as in Docusaurus."""
        base = "".join(_kept(mark) for mark in heading.lower())
        slug = base
        while slug in self._seen:
            self._seen[base] += 1
            slug = f"{base}-{self._seen[base]}"
        self._seen[slug] = 0
        return slug


class PythonMarkdownSlugger:
    """Makes anchors as Python-Markdown's table of contents does, for MkDocs."""

    def __init__(self, explicit: Iterable[str] = ()) -> None:
        """Reserve the explicit ids of the page."""
        self._seen = set(explicit)
        self._numbers: dict[str, int] = {}

    def slug(self, heading: str) -> str:
        """Return the anchor of the next heading."""
        ascii_only = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode("ascii")
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())
        if slug in self._seen or not slug:
            numbered = _NUMBERED.fullmatch(slug)
            base, number = (numbered[1], int(numbered[2])) if numbered else (slug, 0)
            # Continue where the last search ended, so that many equal headings do not take quadratic time.
            number = self._numbers.get(slug, number) + 1
            while f"{base}_{number}" in self._seen:
                number += 1
            self._numbers[slug] = number
            slug = f"{base}_{number}"
        self._seen.add(slug)
        return slug


def _kept(mark: str) -> str:
    """Return what GitHub makes of a character: letters, digits, marks and connectors stay."""
    if mark == " ":
        return "-"
    if mark == "-" or (mark.isascii() and mark.isalnum()):
        return mark
    category = unicodedata.category(mark)
    if category[0] in "LM" or category in ("Nd", "Nl", "Pc"):
        return mark
    return mark if any(first <= ord(mark) <= last for first, last in _CIRCLED) else ""
