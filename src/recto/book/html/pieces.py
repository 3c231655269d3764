"""Pieces of a page's text: lines that belong together, put below each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from recto.book.html.code import fence


@dataclass(slots=True)
class Piece:
    """Lines that belong together; children and anchors are counted from its first line; a heading has a level and its own id."""

    kind: str
    lines: list[str]
    children: list[tuple[str, int, int]] = field(default_factory=list)
    anchors: list[tuple[int, str]] = field(default_factory=list)
    level: int = 0
    id: str = ""


def in_line(piece: Piece) -> str:
    """Return a piece in one line, as a table's cell needs it."""
    if piece.kind == "code":
        code = " ".join(" ".join(piece.lines[1:-1]).split())
        return f"{fence(code, 1)}{code}{fence(code, 1)}"
    return " ".join(line.strip() for line in piece.lines if line.strip())


def all_anchors(pieces: Iterable[Piece]) -> list[tuple[int, str]]:
    """Return the anchors of several pieces."""
    return [anchor for piece in pieces for anchor in piece.anchors]


def append(target: Piece, piece: Piece, blank: bool = False) -> None:
    """Write a piece below another."""
    if blank and target.lines:
        target.lines.append("")
    start = len(target.lines)
    target.lines += piece.lines
    target.anchors += [(start + place, name) for place, name in piece.anchors]


def stacked(kind: str, pieces: Iterable[Piece]) -> Piece:
    """Join pieces; a list stands right below what introduces it, all else after a blank line."""
    whole = Piece(kind, [])
    for piece in pieces:
        blank = piece.kind != "list" and kind != "list"
        start = len(whole.lines) + (blank and bool(whole.lines))
        append(whole, piece, blank)
        whole.children.append(("list_item" if piece.kind == "item" else piece.kind, start, len(piece.lines)))
    return whole
