"""Find quoted passages in the chunks of a book, white space aside, also where a passage runs from one chunk into the next.

Chunks come once and in any order, and their texts are not kept: only the few characters at their edges are, and the places where a
passage begins or ends without being whole. The work does not grow with the number of passages, only with that of matches.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from recto.types import Chunk

_KEY = 16
_EDGE = 2 * _KEY
_SPACE = re.compile(r"\s+")
_Place = tuple[str, int]


class PassageFinder:
    """Looks for all passages in every chunk that it is shown."""

    def __init__(self, passages: Iterable[str]) -> None:
        self._passages = {passage: _dense(passage) for passage in dict.fromkeys(passages)}
        self._found: dict[str, set[str]] = {passage: set() for passage in self._passages}
        self._short = {passage: text for passage, text in self._passages.items() if len(text) <= _EDGE}
        self._begins: dict[str, list[str]] = defaultdict(list)
        self._ends: dict[str, list[str]] = defaultdict(list)
        for passage, text in self._passages.items():
            if passage not in self._short:
                self._begins[text[:_KEY]].append(passage)
                self._ends[text[-_KEY:]].append(passage)
        self._ids: dict[_Place, str] = {}
        self._edges: dict[_Place, tuple[str, str]] = {}
        self._heads: dict[tuple[str, _Place], int] = {}
        self._tails: dict[tuple[str, _Place], int] = {}

    def look(self, chunk: Chunk) -> None:
        """Look at one chunk."""
        if not self._passages:
            return
        text, place = _dense(chunk.text), (chunk.page_url, chunk.chunk_index)
        self._ids[place] = chunk.id
        self._edges[place] = (text[:_EDGE], text[-_EDGE:])
        for passage, dense in self._short.items():
            if dense in text:
                self._found[passage].add(chunk.id)
        if self._begins:
            self._look_for_long(text, place, chunk.id)

    def _look_for_long(self, text: str, place: _Place, id: str) -> None:
        for start in range(len(text) - _KEY + 1):
            window = text[start : start + _KEY]
            for passage in self._begins.get(window, ()):
                dense = self._passages[passage]
                if text.startswith(dense, start):
                    self._found[passage].add(id)
                elif dense.startswith(text[start:]):
                    self._heads.setdefault((passage, place), len(text) - start)
            for passage in self._ends.get(window, ()):
                if self._passages[passage].endswith(text[: start + _KEY]):
                    self._tails[passage, place] = start + _KEY

    def found(self) -> dict[str, frozenset[str]]:
        """Return the ids of the chunks that hold each passage, whole or one half of it."""
        for (passage, place), length in self._heads.items():
            self._join(passage, place, _next(place), length, None)
        for (passage, place), length in self._tails.items():
            self._join(passage, _previous(place), place, None, length)
        for place, (_, end) in self._edges.items() if self._short else ():
            if (after := self._edges.get(_next(place))) is not None:
                for passage, dense in self._short.items():
                    if _over_the_edge(dense, end, after[0]):
                        self._found[passage] |= {self._ids[place], self._ids[_next(place)]}
        return {passage: frozenset(ids) for passage, ids in self._found.items()}

    def _join(self, passage: str, one: _Place, other: _Place, head: int | None, tail: int | None) -> None:
        """Note two neighbours that hold a passage together; the half that is not known is shorter than a key, or was not seen."""
        if one not in self._ids or other not in self._ids:
            return
        dense = self._passages[passage]
        head = self._heads.get((passage, one), 0) if head is None else head
        tail = self._tails.get((passage, other), 0) if tail is None else tail
        if head + tail < len(dense):
            end, begin = self._edges[one][1], self._edges[other][0]
            head = head or _longest(dense, lambda size: end.endswith(dense[:size]))
            tail = tail or _longest(dense, lambda size: begin.startswith(dense[-size:]))
        if head + tail >= len(dense):
            self._found[passage] |= {self._ids[one], self._ids[other]}


def _over_the_edge(dense: str, end: str, begin: str) -> bool:
    return any(end.endswith(dense[:size]) and begin.startswith(dense[size:]) for size in range(1, len(dense)))


def _longest(dense: str, fits: Callable[[int], bool]) -> int:
    return next((size for size in range(min(_KEY, len(dense)), 0, -1) if fits(size)), 0)


def _dense(text: str) -> str:
    return _SPACE.sub("", text)


def _next(place: _Place) -> _Place:
    return place[0], place[1] + 1


def _previous(place: _Place) -> _Place:
    return place[0], place[1] - 1
