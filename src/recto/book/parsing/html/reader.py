"""Parse a web page into sections of blocks; line numbers are those of the rendered text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING

from recto.book.parsing.html.blocks import TextBlock, render
from recto.book.parsing.html.tokens import Tag, main_content, simplify, tokens, without_site_name
from recto.errors import missing_extra
from recto.types import Block, Document, Section

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser

_REFRESH = re.compile(r"^\s*[\d.]+\s*[;,]\s*(?:url\s*=\s*)?[\"']?([^\"']+)", re.IGNORECASE)
_MOST_LINKS = 20_000
_LISTING = re.compile(r"\bgeneratedIndexPage")


@dataclass(frozen=True, slots=True)
class Head:
    """The metadata and links of a page; URLs are as written, relative to `base` or to the page."""

    title: str = ""
    og_title: str = ""
    canonical: str = ""
    base: str = ""
    refresh: str = ""
    robots: frozenset[str] = frozenset()
    listing: bool = False
    links: tuple[str, ...] = ()


def read_head(html: str) -> Head:
    """Read the metadata and links of a page; the first of two values counts."""
    found: dict[str, str] = {}
    robots: set[str] = set()
    links: dict[str, None] = {}
    listing = False
    for token in tokens(html):
        if not isinstance(token, Tag):
            continue
        values = token.attributes
        if (
            token.name == "a"
            and "href" in values
            and len(links) < _MOST_LINKS
            and "nofollow" not in values.get("rel", "").lower()
        ):
            links[values["href"].strip()] = None
        elif token.name == "meta" and values.get("name", "").lower() in ("robots", "recto"):
            robots.update(word.strip() for word in values.get("content", "").lower().split(","))
        for name, value in _said(token):
            if value:
                found.setdefault(name, value)
        listing = listing or bool(_LISTING.search(values.get("class", "")))
    return Head(**found, robots=frozenset(robots), listing=listing, links=tuple(links))


def _said(tag: Tag) -> Iterator[tuple[str, str]]:
    """Yield the fields of a `Head` that a tag states."""
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
    elif (
        tag.name == "meta"
        and values.get("http-equiv", "").lower() == "refresh"
        and (address := _REFRESH.match(content))
    ):
        yield "refresh", address[1].strip()


def parse_html(html: str, *, title: str = "", url: str = "") -> Document:
    """Parse a page; its title is the top heading, else `og:title`, else `<title>`, else `title`."""
    tree = _tree(html)
    content = main_content(tree)
    rendered = render(content) if content is not None else []
    head = read_head(html)
    stated = next((block.lines[0] for block in rendered if block.level == 1), "") or _outer_heading(tree)
    stated = stated or without_site_name(head.og_title) or without_site_name(head.title) or title or url
    return Document(stated, tuple(_sections(rendered, stated)))


def _tree(html: str) -> LexborHTMLParser:
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError as error:
        raise missing_extra("Reading a website", "crawl") from error
    return LexborHTMLParser(simplify(html))


def _outer_heading(tree: LexborHTMLParser) -> str:
    """Return the top heading, which some websites put above the content."""
    found = tree.css_first("main h1") or tree.css_first("article h1")
    return " ".join(found.text().replace("\u200b", "").split()) if found is not None else ""


def _sections(rendered: list[TextBlock], title: str) -> list[Section]:
    """Group blocks by heading and number their lines, with a blank line after each block."""
    sections: list[Section] = []
    path: list[tuple[int, str]] = []
    opened = Section((title,), 1, "", 1, ())
    blocks: list[Block] = []
    anchors: list[tuple[int, str]] = []
    line = 1
    for block in rendered:
        if block.kind == "heading":
            if blocks:
                sections.append(_closed(opened, blocks, anchors))
                blocks, anchors = [], []  # a heading without text passes its anchors on
            path = [(upper, text) for upper, text in path if upper < block.level]
            if block.level > 1 or block.lines[0] != title:
                path.append((block.level, block.lines[0]))
            opened = Section(
                (title, *(text for _, text in path)), block.level, block.id if path else "", line, ()
            )
        else:
            blocks.append(_block(block, line))
        anchors += [(line + place, name) for place, name in block.anchors]
        line += len(block.lines) + 1
    if blocks:
        sections.append(_closed(opened, blocks, anchors))
    elif sections and anchors:
        last = sections.pop()
        sections.append(_closed(last, list(last.blocks), [*last.anchors, *anchors]))
    return sections


def _closed(section: Section, blocks: list[Block], anchors: list[tuple[int, str]]) -> Section:
    return Section(
        section.headings,
        section.level,
        section.anchor,
        section.line,
        tuple(blocks),
        tuple(dict.fromkeys(anchors)),
    )


def _block(source: TextBlock, line: int) -> Block:
    starts = tuple(line + start for _, start, _ in source.children)
    return Block(
        source.kind, "\n".join(source.lines), line, line + len(source.lines) - 1, (starts,) if starts else ()
    )
