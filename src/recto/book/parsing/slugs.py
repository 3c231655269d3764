"""Anchors of headings, as the published page has them: Docusaurus and GitHub, or Python-Markdown."""

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
_CIRCLED = (
    (0x24B6, 0x24E9),
    (0x1F130, 0x1F149),
    (0x1F150, 0x1F169),
    (0x1F170, 0x1F189),
)  # letters in circles and squares count as letters


class Slugs(Protocol):
    """Gives each heading of one page its anchor, in the order of the page."""

    def slug(self, heading: str) -> str:
        """Return the anchor of the next heading that states none."""


def slugger(style: AnchorStyle, explicit: Iterable[str] = ()) -> Slugs:
    """Make the slugger of a page; `explicit` are the anchors that its headings state."""
    return PythonMarkdownSlugger(explicit) if style == "python-markdown" else Slugger()


def split_explicit_id(heading: str, style: AnchorStyle = "github") -> tuple[str, str]:
    """Split a heading's source into its text and its explicit id: `{#id}`, `{/* #id */}`, `<!-- #id -->`, or an attribute list."""
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
    """Makes anchors by GitHub's rules, as Docusaurus does; an explicit id takes no number from the others."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def slug(self, heading: str) -> str:
        """Return the anchor of the next heading; white space at its ends counts, as it does on the published page."""
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
        """Begin with the ids that are stated anywhere on the page: they are taken before the first heading is named."""
        self._seen = set(explicit)
        self._numbers: dict[str, int] = {}

    def slug(self, heading: str) -> str:
        """Return the anchor of the next heading."""
        ascii_only = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode("ascii")
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())
        if slug in self._seen or not slug:
            numbered = _NUMBERED.fullmatch(slug)
            base, number = (numbered[1], int(numbered[2])) if numbered else (slug, 0)
            # Where the last search from this name ended, the next can begin: a thousand equal headings are not a million steps.
            number = self._numbers.get(slug, number) + 1
            while f"{base}_{number}" in self._seen:
                number += 1
            self._numbers[slug] = number
            slug = f"{base}_{number}"
        self._seen.add(slug)
        return slug


def _kept(mark: str) -> str:
    """GitHub keeps letters, digits, marks, connectors and hyphens, turns a space into a hyphen and drops the rest."""
    if mark == " ":
        return "-"
    if mark == "-" or (mark.isascii() and mark.isalnum()):
        return mark
    category = unicodedata.category(mark)
    if category[0] in "LM" or category in ("Nd", "Nl", "Pc"):
        return mark
    return mark if any(first <= ord(mark) <= last for first, last in _CIRCLED) else ""
