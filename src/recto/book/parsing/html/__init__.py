"""Parse a web page into sections of blocks; line numbers count the lines of the rendered text."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from html import unescape
from typing import TYPE_CHECKING

from recto.book.parsing.html.blocks import TextBlock, render
from recto.book.parsing.html.tokens import Tag, main_content, simplify, tokens, without_site_name
from recto.errors import missing_extra
from recto.types.book import Block, Document, Section

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser

_REFRESH = re.compile(r"^\s*[\d.]+\s*[;,]\s*(?:url\s*=\s*)?[\"']?([^\"']+)", re.IGNORECASE)
_OPEN_GRAPH = {"og:title": "og_title", "og:site_name": "site_name"}
_MOST_LINKS = 20_000
_LISTING = re.compile(r"\bgeneratedIndexPage")


@dataclass(frozen=True, slots=True)
class Head:
    """The metadata and links of a page; URLs are as written, relative to `base` or to the page."""

    title: str = ""
    og_title: str = ""
    site_name: str = ""
    canonical: str = ""
    base: str = ""
    refresh: str = ""
    robots: frozenset[str] = frozenset()
    listing: bool = False
    links: tuple[str, ...] = ()


def read_head(html: str) -> Head:
    """Read the metadata and links of a page; the first of two values counts."""
    values: dict[str, str] = {}
    robots: set[str] = set()
    links: dict[str, None] = {}
    listing = False
    for tag in tokens(html):
        if not isinstance(tag, Tag):
            continue
        key, value = "", ""
        said = tag.attributes
        rel, href, content = (
            said.get("rel", "").lower(),
            said.get("href", "").strip(),
            said.get("content", ""),
        )
        if tag.name == "a" and "href" in said and "nofollow" not in rel and len(links) < _MOST_LINKS:
            links[href] = None
        elif tag.name == "title":
            key, value = "title", " ".join(unescape(tag.raw).split())
        elif tag.name == "base":
            key, value = "base", href
        elif tag.name == "link" and "canonical" in rel.split():
            key, value = "canonical", href
        elif tag.name == "meta":
            if said.get("name", "").lower() in ("robots", "recto"):
                robots.update(word.strip() for word in content.lower().split(","))
            if said.get("property", "").lower() in _OPEN_GRAPH:
                key, value = _OPEN_GRAPH[said["property"].lower()], " ".join(content.split())
            elif said.get("http-equiv", "").lower() == "refresh" and (address := _REFRESH.match(content)):
                key, value = "refresh", address[1].strip()
        if value:
            values.setdefault(key, value)
        listing = listing or bool(_LISTING.search(said.get("class", "")))
    return Head(**values, robots=frozenset(robots), listing=listing, links=tuple(links))


def parse_html(html: str, *, title: str = "", url: str = "") -> Document:
    """Parse a page; its title is the top heading, else `og:title`, else `<title>`, else `title`."""
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError as error:
        raise missing_extra("Reading a website", "crawl") from error
    tree = LexborHTMLParser(simplify(html))
    content = main_content(tree)
    rendered = render(content) if content is not None else []
    head = read_head(html)
    stated = next((block.lines[0] for block in rendered if block.level == 1), "") or _outer_heading(tree)
    stated = stated or without_site_name(head.og_title) or without_site_name(head.title) or title or url
    return Document(stated, tuple(_sections(rendered, stated)))


def _outer_heading(tree: LexborHTMLParser) -> str:
    """Return the top heading, which some websites put above the content."""
    heading = tree.css_first("main h1") or tree.css_first("article h1")
    return " ".join(heading.text().replace("\u200b", "").split()) if heading is not None else ""


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
                sections.append(replace(opened, blocks=tuple(blocks), anchors=tuple(dict.fromkeys(anchors))))
                blocks, anchors = [], []  # a heading without text passes its anchors on
            path = [(upper, text) for upper, text in path if upper < block.level]
            if block.level > 1 or block.lines[0] != title:
                path.append((block.level, block.lines[0]))
            headings = (title, *(text for _, text in path))
            opened = Section(headings, block.level, block.id if path else "", line, ())
        else:
            starts = tuple(line + start for start in block.children)
            last = line + len(block.lines) - 1
            blocks.append(Block(block.kind, "\n".join(block.lines), line, last, (starts,) if starts else ()))
        anchors += [(line + offset, name) for offset, name in block.anchors]
        line += len(block.lines) + 1
    if not blocks and sections and anchors:  # after the last text
        opened = sections.pop()
        blocks, anchors = list(opened.blocks), [*opened.anchors, *anchors]
    if blocks:
        sections.append(replace(opened, blocks=tuple(blocks), anchors=tuple(dict.fromkeys(anchors))))
    return sections
