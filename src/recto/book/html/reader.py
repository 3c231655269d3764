"""Parse a page of a website into sections of blocks; its lines are those of the text that is made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recto.book.document import Block, Document, Section
from recto.book.html.blocks import render
from recto.book.html.content import main_content, without_site_name
from recto.book.html.head import read_head
from recto.book.html.pieces import Piece
from recto.book.html.tokens import tame
from recto.errors import missing_extra

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser


def parse_html(html: str, *, title: str = "", url: str = "") -> Document:
    """Parse a page; its title is its top heading, else what it is shared as, else its window's title, else `title`."""
    tree = _tree(html)
    content = main_content(tree)
    pieces = render(content) if content is not None else []
    head = read_head(html)
    stated = next((piece.lines[0] for piece in pieces if piece.level == 1), "") or _outer_heading(tree)
    stated = stated or without_site_name(head.og_title) or without_site_name(head.title) or title or url
    return Document({}, stated, tuple(_sections(pieces, stated)))


def _tree(html: str) -> LexborHTMLParser:
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError as error:
        raise missing_extra("Reading a website", "crawl") from error
    return LexborHTMLParser(tame(html))


def _outer_heading(tree: LexborHTMLParser) -> str:
    """Return the top heading that some websites set above the content."""
    found = tree.css_first("main h1") or tree.css_first("article h1")
    return " ".join(found.text().replace("\u200b", "").split()) if found is not None else ""


def _sections(pieces: list[Piece], title: str) -> list[Section]:
    """Put blocks under their headings and count their lines: each is followed by a blank one."""
    sections: list[Section] = []
    path: list[tuple[int, str]] = []
    opened = Section((title,), 1, "", 1, ())
    blocks: list[Block] = []
    anchors: list[tuple[int, str]] = []
    line = 1
    for piece in pieces:
        if piece.kind == "heading":
            if blocks:
                sections.append(_closed(opened, blocks, anchors))
                blocks, anchors = [], []  # those of a heading without text lead on to what follows
            path = [(upper, text) for upper, text in path if upper < piece.level]
            if piece.level > 1 or piece.lines[0] != title:
                path.append((piece.level, piece.lines[0]))
            opened = Section((title, *(text for _, text in path)), piece.level, piece.id if path else "", line, ())
        else:
            blocks.append(_block(piece, line))
        anchors += [(line + place, name) for place, name in piece.anchors]
        line += len(piece.lines) + 1
    if blocks:
        sections.append(_closed(opened, blocks, anchors))
    elif sections and anchors:
        last = sections.pop()
        sections.append(_closed(last, list(last.blocks), [*last.anchors, *anchors]))
    return sections


def _closed(section: Section, blocks: list[Block], anchors: list[tuple[int, str]]) -> Section:
    return Section(section.headings, section.level, section.anchor, section.line, tuple(blocks), tuple(dict.fromkeys(anchors)))


def _block(piece: Piece, line: int) -> Block:
    starts = tuple(line + start for _, start, _ in piece.children)
    return Block(piece.kind, "\n".join(piece.lines), line, line + len(piece.lines) - 1, (starts,) if starts else ())
