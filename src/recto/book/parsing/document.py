"""A parsed page: sections of blocks, whatever format it was written in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a section that belongs together; lines count from one, `last` is its last line.

    `cuts` are the lines where blocks begin and end that it holds, those of the outermost first: the places to divide it at. `lines` are
    the lines of the source that the lines of `text` come from; it is empty where none in between was left out.
    """

    kind: str
    text: str
    first: int
    last: int
    cuts: tuple[tuple[int, ...], ...] = ()
    lines: tuple[int, ...] = ()

    def source_line(self, number: int) -> int:
        """Return where a line of the text, counted from zero, stands in the source."""
        return self.lines[number] if self.lines else self.first + number


@dataclass(frozen=True, slots=True)
class Section:
    """What stands under one heading, without the sections below it; `headings` has the page's title first.

    `anchors` are all places in it that an address can open, by their lines: its own heading, headings above it that have no text of
    their own, headings and ids within its blocks.
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
