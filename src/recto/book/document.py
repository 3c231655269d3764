"""A page that was read: sections under headings, made of blocks that know their lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a section that belongs together; lines count from one, `last` is its last line."""

    kind: str
    text: str
    first: int
    last: int
    children: tuple[Block, ...] = ()


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
