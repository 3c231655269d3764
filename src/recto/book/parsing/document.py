"""A parsed page: sections of blocks, whatever format it was written in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a section, such as a paragraph or a list; lines count from one, `last` is its last line.

    `cuts` are the lines where its nested blocks begin and end, by nesting level: the best places to split it.
    `lines` are the source lines of the lines of `text`; it is empty if they are consecutive.
    """

    kind: str
    text: str
    first: int
    last: int
    cuts: tuple[tuple[int, ...], ...] = ()
    lines: tuple[int, ...] = ()

    def source_line(self, number: int) -> int:
        """Return the source line of a line of the text, counted from zero."""
        return self.lines[number] if self.lines else self.first + number


@dataclass(frozen=True, slots=True)
class Section:
    """The text under one heading, without its subsections; `headings` begins with the page title.

    `anchors` are all anchors in it, with their lines: its own, those of headings above it that have no text,
    and those of headings and ids within its blocks.
    """

    headings: tuple[str, ...]
    level: int
    anchor: str
    line: int
    blocks: tuple[Block, ...]
    anchors: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed page."""

    front_matter: dict[str, Any]
    title: str
    sections: tuple[Section, ...]
