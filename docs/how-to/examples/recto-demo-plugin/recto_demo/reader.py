"""A reader for reStructuredText: headings are underlined, blocks are separated by blank lines."""

from __future__ import annotations

import re
from itertools import pairwise

from recto.types.book import Block, Document, Page, Section

UNDERLINE = re.compile(r"([=\-`:.'\"~^_*+#])\1{2,}\s*")


def read_rst(page: Page) -> Document:
    """Return the title and the sections of a page."""
    lines = page.text.splitlines()
    headings = {
        number: (text.strip(), below[0])
        for number, (text, below) in enumerate(pairwise(lines), start=1)
        if text.strip() and UNDERLINE.fullmatch(below) and not UNDERLINE.fullmatch(text)
    }
    title = next((text for text, _ in headings.values()), page.title)
    styles = list(dict.fromkeys(style for _, style in headings.values()))  # the first style is the top level
    path: list[str] = []
    sections: list[Section] = []
    for start, end in pairwise((1, *headings, len(lines) + 1)):
        level, anchor, body = 1, "", start
        if start in headings:
            text, style = headings[start]
            level = styles.index(style) + 1
            path[level - 1 :] = [] if text == title else [text]
            anchor = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") if path else ""
            body = start + 2
        blocks = tuple(_blocks(lines, body, end))
        sections.append(Section((title, *path), level, anchor, start, blocks))
    return Document(title, tuple(section for section in sections if section.blocks))


def _blocks(lines: list[str], start: int, end: int) -> list[Block]:
    """Return the runs of lines between blank lines and lines of punctuation; `end` is not included."""
    blocks: list[Block] = []
    first = start
    for number in range(start, end + 1):
        if number == end or not lines[number - 1].strip() or UNDERLINE.fullmatch(lines[number - 1]):
            if first < number:
                blocks.append(Block("paragraph", "\n".join(lines[first - 1 : number - 1]), first, number - 1))
            first = number + 1
    return blocks
