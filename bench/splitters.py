"""Simple text splitters to compare with: windows of tokens, and recursive splitting by separators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from bench.measures import Range

_SEPARATORS = ("\n\n", "\n", ". ", " ")


def windows(offsets: Sequence[Range], tokens: int, step: int) -> list[Range]:
    """Split into windows of tokens, each beginning `step` tokens after the previous one."""
    starts = range(0, max(1, len(offsets) - tokens + step), step)
    return [(offsets[start][0], offsets[min(start + tokens, len(offsets)) - 1][1]) for start in starts]


def recursive(text: str, largest: int) -> list[Range]:
    """Split into parts of at most `largest` characters, at the coarsest separator that allows it."""
    ranges = [
        _stripped(text, begin, end) for begin, end in _recursive(text, 0, len(text), largest, _SEPARATORS)
    ]
    return [part for part in ranges if part[0] < part[1]]


def _recursive(text: str, start: int, end: int, largest: int, separators: Sequence[str]) -> Iterator[Range]:
    if end - start <= largest:
        yield start, end
        return
    if not separators:
        yield from ((left, min(left + largest, end)) for left in range(start, end, largest))
        return
    begin = start
    for left, right in pairwise(_bounds(text, start, end, separators[0])):
        if right - begin > largest and left > begin:
            yield begin, left
            begin = left
        if right - left > largest:
            yield from _recursive(text, left, right, largest, separators[1:])
            begin = right
    if begin < end:
        yield begin, end


def _bounds(text: str, start: int, end: int, separator: str) -> list[int]:
    """Return both ends, and every position right after a separator."""
    bounds, place = [start], start
    while (place := text.find(separator, place, end)) >= 0:
        place += len(separator)
        if place < end:
            bounds.append(place)
    return [*bounds, end]


def _stripped(text: str, start: int, end: int) -> Range:
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - (len(part) - len(part.rstrip()))
