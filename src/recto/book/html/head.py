"""What a page says of itself: its title, its own address, whether it may be indexed, and where it leads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape

from recto.book.html.tokens import Tag, tokens

_REFRESH = re.compile(r"^\s*[\d.]+\s*[;,]\s*(?:url\s*=\s*)?[\"']?([^\"']+)", re.IGNORECASE)
_MOST_LINKS = 20_000
_LISTING = re.compile(r"\bgeneratedIndexPage")


@dataclass(frozen=True, slots=True)
class Head:
    """Addresses are as written; `base` is what they are relative to, if it is not the page."""

    title: str = ""
    og_title: str = ""
    canonical: str = ""
    base: str = ""
    refresh: str = ""
    robots: frozenset[str] = frozenset()
    listing: bool = False
    links: tuple[str, ...] = ()


def read_head(html: str) -> Head:
    """Read what a page says of itself, wherever in it that stands; of two sayings the first counts."""
    found: dict[str, str] = {}
    robots: set[str] = set()
    links: dict[str, None] = {}
    listing = False
    for token in tokens(html):
        if not isinstance(token, Tag):
            continue
        values = token.attributes
        if token.name == "a" and "href" in values and len(links) < _MOST_LINKS and "nofollow" not in values.get("rel", "").lower():
            links[values["href"].strip()] = None
        elif token.name == "meta" and values.get("name", "").lower() in ("robots", "recto"):
            robots.update(word.strip() for word in values.get("content", "").lower().split(","))
        for name, value in _said(token):
            if value:
                found.setdefault(name, value)
        listing = listing or bool(_LISTING.search(values.get("class", "")))
    return Head(**found, robots=frozenset(robots), listing=listing, links=tuple(links))


def _said(tag: Tag) -> Iterator[tuple[str, str]]:
    """Yield what a tag says, under the name it has in a `Head`."""
    values = tag.attributes
    content = values.get("content", "")
    if tag.name == "title":
        yield "title", " ".join(unescape(tag.raw).split())
    elif tag.name == "base":
        yield "base", values.get("href", "").strip()
    elif tag.name == "link" and "canonical" in values.get("rel", "").lower().split():
        yield "canonical", values.get("href", "").strip()
    elif tag.name == "meta" and values.get("property", "").lower() == "og:title":
        yield "og_title", " ".join(content.split())
    elif tag.name == "meta" and values.get("http-equiv", "").lower() == "refresh" and (address := _REFRESH.match(content)):
        yield "refresh", address[1].strip()
