"""Divide one block that is too large, at the places where it hurts least."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from recto.book.document import Block

Count = Callable[[str], int]
Cuts = Callable[[str, int, int], Sequence[int]]
"""Where a stretch of a text may be divided: positions between its two ends."""

_SENTENCE = re.compile(r"(?<=[.!?…。！？])[\"'”’)\]]*\s+")
_WORD = re.compile(r"\s+")
_MANY_WORDS = 5000  # from here on it is no prose, and every place that is tried costs a count of tokens
_WORDS_AT_A_TIME = 8
_CHARACTERS_AT_A_TIME = 8
_TABLE_HEAD = 2  # a table's first row and the line of dashes under it


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a block; `glue` joins it to the part before it, `repeated` stands before it where that part is missing."""

    text: str
    first: int
    last: int
    tokens: int
    glue: str = "\n\n"
    repeated: str = ""


def pieces(block: Block, limit: int, count: Count) -> list[Piece]:
    """Return a block as one piece, or as several of at most `limit` tokens each; no character is lost or doubled."""
    tokens = count(block.text)
    if tokens <= limit:
        return [Piece(block.text, block.first, block.last, tokens)]
    if block.kind == "table" and (divided := _table(block, limit, count)):
        return divided
    return list(_divided(block, _levels(block), limit, count))


def _levels(block: Block) -> list[Cuts]:
    """Name the kinds of places to divide at, the best first."""
    if block.kind == "paragraph":
        return [_sentences, _words, _anywhere]
    if block.children:
        return [_children(block), _lines, _sentences, _words, _anywhere]
    return [_lines, _words, _anywhere]


def _table(block: Block, limit: int, count: Count) -> list[Piece]:
    """Divide between rows and let every part have the head; a head that takes most of the room is not worth it."""
    rows = block.text.split("\n")
    head = "\n".join(rows[:_TABLE_HEAD])
    room = limit - count(head)
    if room < limit // 2 or len(rows) <= _TABLE_HEAD:
        return []
    body = Block("rows", "\n".join(rows[_TABLE_HEAD:]), block.first + _TABLE_HEAD, block.last)
    first, *others = _divided(body, _levels(body), room, count)
    beginning = Piece(f"{head}\n{first.text}", block.first, first.last, first.tokens + limit - room)
    return [
        beginning,
        *(Piece(part.text, part.first, part.last, part.tokens + limit - room, part.glue, f"{head}\n") for part in others),
    ]


def _divided(block: Block, levels: Sequence[Cuts], limit: int, count: Count) -> Iterator[Piece]:
    """Turn the stretches of a block into pieces; the white space between them becomes glue."""
    text, before = block.text, 0
    for start, end in _stretches(text, 0, len(text), levels, limit, count):
        part = text[start:end]
        begin = start + len(part) - len(part.lstrip("\n"))
        stop = start + len(part.rstrip())
        if begin >= stop:
            continue
        part, first = text[begin:stop], block.first + text.count("\n", 0, begin)
        yield Piece(part, first, first + part.count("\n"), count(part), text[before:begin] if before else "\n\n")
        before = stop


def _stretches(text: str, start: int, end: int, levels: Sequence[Cuts], limit: int, count: Count) -> Iterator[tuple[int, int]]:
    """Fill stretches up to the limit with what lies between two cuts; what does not fit alone is cut at the next level."""
    bounds = [start, *levels[0](text, start, end), end]
    begin, tokens = start, 0
    for left, right in pairwise(bounds):
        size = count(text[left:right]) + 1
        if tokens and tokens + size > limit:
            yield begin, left
            begin, tokens = left, 0
        if size > limit and len(levels) > 1:
            yield from _stretches(text, left, right, levels[1:], limit, count)
            begin, tokens = right, 0
        else:
            tokens += size
    if begin < end:
        yield begin, end


def _children(block: Block) -> Cuts:
    """Cut before each item of a list, each block of an admonition."""
    starts = {child.first - block.first for child in block.children[1:]}

    def cuts(text: str, start: int, end: int) -> Sequence[int]:
        lines = [0, *(found.end() for found in re.finditer("\n", text))]
        return [lines[number] for number in sorted(starts) if start < lines[number] < end]

    return cuts


def _lines(text: str, start: int, end: int) -> Sequence[int]:
    return [found.end() for found in re.compile("\n").finditer(text, start, end) if found.end() < end]


def _sentences(text: str, start: int, end: int) -> Sequence[int]:
    return [found.end() for found in _SENTENCE.finditer(text, start, end) if found.end() < end]


def _words(text: str, start: int, end: int) -> Sequence[int]:
    cuts = [found.end() for found in _WORD.finditer(text, start, end) if start < found.end() < end]
    return cuts[:: 1 if len(cuts) < _MANY_WORDS else _WORDS_AT_A_TIME]


def _anywhere(_: str, start: int, end: int) -> Sequence[int]:
    return range(start + _CHARACTERS_AT_A_TIME, end, _CHARACTERS_AT_A_TIME)
