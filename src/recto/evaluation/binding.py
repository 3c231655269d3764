"""Bind a suite to an index: look up every target that it names, in one pass over the chunks.

A question is judged by its finest targets: passages, else pages and sections, else modules. A target that is
not in the index is not a failure of retrieval: it is unmeasured, and reported with the nearest existing name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from recto._util.text import filter_keys, nearest, page_key, with_anchor, without_space
from recto.evaluation.measures import Judged
from recto.evaluation.suites import Expectation, Suite
from recto.protocols import Index
from recto.types import HEADING_SEPARATOR, Chunk

_KEY = 16
_EDGE = 2 * _KEY
_Place = tuple[str, int]

_SUGGESTIONS = 50
"""Missing targets that get a suggestion; a suite of another book would take too long."""

_HEADING_ID = re.compile(r"\s*\{[\s:/*]*#[^}]*\}\s*$")
_LINK = re.compile(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
_MARKUP = re.compile(r"[`*\\]")


class PassageFinder:
    """Finds passages in chunks, including passages that two neighbouring chunks share."""

    def __init__(self, passages: Iterable[str]) -> None:
        self._passages = {passage: without_space(passage) for passage in dict.fromkeys(passages)}
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
        """Search one chunk."""
        if not self._passages:
            return
        text, place = without_space(chunk.text), (chunk.page_url, chunk.chunk_index)
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
        """Return the ids of the chunks that contain each passage, or a part of it."""
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
        """Record two neighbours that share a passage; compare a part that is shorter than a key directly."""
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


def _next(place: _Place) -> _Place:
    return place[0], place[1] + 1


def _previous(place: _Place) -> _Place:
    return place[0], place[1] - 1


@dataclass(frozen=True, slots=True)
class Target:
    """A part of the book that a question accepts: a module, a page, a section, or a passage.

    A passage is a set of chunk ids (from `bind`) or a text. With `path_end`, `page` may be the end of a path.
    """

    name: str
    module: str = ""
    page: str = ""
    anchor: str = ""
    heading: str = ""
    chunks: frozenset[str] = frozenset()
    text: str = ""
    path_end: bool = False

    def holds(self, chunk: Chunk) -> bool:
        """Return whether a chunk belongs to this target."""
        if self.chunks:
            return chunk.id in self.chunks
        if self.text:
            return self.text in without_space(chunk.text).casefold()
        if self.page:
            return (
                self._is_page(chunk)
                and (not self.anchor or self.anchor in anchors_of(chunk))
                and (not self.heading or self.heading in map(heading_key, chunk.headings))
            )
        return self.module in chunk.module_keys

    def _is_page(self, chunk: Chunk) -> bool:
        keys = (page_key(chunk.page_url), page_key(chunk.source))
        return self.page in keys or (
            self.path_end and any(key.endswith(f"/{self.page.lstrip('/')}") for key in keys)
        )


@dataclass(frozen=True, slots=True)
class Missing:
    """A target of a question that is not in the index."""

    key: str
    query: str
    target: str
    near: str = ""

    def __str__(self) -> str:
        """Return a sentence for a report."""
        return f"{self.target!r} is not in the index" + (
            f"; the nearest is {self.near!r}" if self.near else ""
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"id": self.key, "query": self.query, "target": self.target, "nearest": self.near or None}


@dataclass(frozen=True, slots=True)
class Bound:
    """A question with its targets that exist, and those that do not."""

    expectation: Expectation
    targets: tuple[Target, ...]
    modules: frozenset[str]
    missing: tuple[Missing, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether the question can be judged: it has a target, and a module if it names one."""
        return self.expectation.nothing or (
            bool(self.targets) and bool(self.modules or not self.expectation.modules)
        )

    def judge(self, chunks: Iterable[Chunk]) -> Judged:
        """Return the gain of each result: 1 if it reaches a target that no earlier result reached."""
        open_targets, gains, module = list(self.targets), [], None
        for chunk in chunks:
            if module is None:
                module = not self.modules.isdisjoint(chunk.module_keys)
            reached = next((target for target in open_targets if target.holds(chunk)), None)
            gains.append(0.0 if reached is None else 1.0)
            if reached is not None:
                open_targets.remove(reached)
        return Judged(tuple(gains), (1.0,) * len(self.targets), bool(module) if self.modules else None)


@dataclass(frozen=True, slots=True)
class BoundSuite:
    """A suite whose targets were looked up in one index."""

    suite: Suite
    questions: tuple[Bound, ...]

    @property
    def unmeasured(self) -> tuple[Bound, ...]:
        """The questions without an existing target."""
        return tuple(bound for bound in self.questions if not bound.measured)

    @property
    def partial(self) -> tuple[Missing, ...]:
        """The missing targets of questions that still have others."""
        return tuple(missing for bound in self.questions if bound.measured for missing in bound.missing)


def bind(suite: Suite, index: Index) -> BoundSuite:
    """Look up every target of a suite in one pass over the index."""
    book = _Book(suite)
    for chunk in index.scroll():
        book.look(chunk)
    return BoundSuite(suite, tuple(book.bound(expectation) for expectation in suite.expectations))


def bind_by_name(expectation: Expectation, suite: Suite | None = None) -> Bound:
    """Accept the modules, pages and passages of a question as they are named, without reading the index."""
    modules = tuple(map(module_target, expectation.modules))
    if expectation.passages:
        targets = tuple(map(passage_target, expectation.passages))
    elif expectation.pages:
        targets = tuple(page_target(suite.page(page) if suite else page) for page in expectation.pages)
    else:
        targets = modules
    return Bound(expectation, targets, frozenset(target.module for target in modules))


def module_target(name: str) -> Target:
    """Return the target for a module's name."""
    return Target(name, module=filter_keys([name])[0])


def page_target(name: str, *, path_end: bool = False) -> Target:
    """Return the target for a page's URL or path; headings and anchors in the name are ignored."""
    page = name.partition(HEADING_SEPARATOR)[0]
    return Target(name, page=page_key(page), path_end=path_end)


def passage_target(text: str) -> Target:
    """Return the target for a quoted text, whatever its white space and case."""
    return Target(text, text=without_space(text).casefold())


def anchors_of(chunk: Chunk) -> frozenset[str]:
    """Return all anchors of a chunk; an index of an earlier version has at most one."""
    return frozenset(unquote(anchor) for anchor in (chunk.anchor, *chunk.anchors) if anchor)


def heading_key(heading: str) -> str:
    """Return a heading without markup and case, for comparison."""
    text = _LINK.sub(r"\1", _HEADING_ID.sub("", heading))
    return " ".join(_MARKUP.sub("", text).casefold().split())


class _Book:
    """The modules, pages, anchors, headings and passages of an index that a suite needs."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._finder = PassageFinder(
            passage for expectation in suite.expectations for passage in expectation.passages
        )
        self._passages: dict[str, frozenset[str]] | None = None
        self._modules: dict[str, str] = {}
        self._pages: dict[str, str] = {}
        self._urls: dict[str, str] = {}
        self._anchors: dict[str, set[str]] = {}
        self._headings: dict[str, set[str]] = {}
        self._suggested = 0

    def look(self, chunk: Chunk) -> None:
        self._finder.look(chunk)
        for name in chunk.module_keys:
            self._modules.setdefault(name, chunk.module_name)
        key = page_key(chunk.page_url)
        if key not in self._urls:
            self._urls[key] = chunk.page_url
            self._anchors[key] = set()
            self._headings[key] = set()
            self._pages[key] = key
            if chunk.source:
                self._pages.setdefault(page_key(chunk.source), key)
        self._anchors[key] |= anchors_of(chunk)
        self._headings[key].update(chunk.headings)

    def bound(self, expectation: Expectation) -> Bound:
        modules = frozenset(
            found.module for name in expectation.modules if isinstance(found := self._module(name), Target)
        )
        if expectation.passages:
            places = [self._passage(passage) for passage in expectation.passages]
        elif expectation.pages:
            places = [self._page(page) for page in expectation.pages]
        else:
            places = [self._module(module) for module in expectation.modules]
        targets = _distinct([target for target in places if isinstance(target, Target)])
        absent = [place for place in places if isinstance(place, str)]
        if expectation.passages or expectation.pages:
            absent += [
                place for module in expectation.modules if isinstance(place := self._module(module), str)
            ]
        missing = tuple(
            Missing(expectation.key, expectation.query, place, self._near(place, expectation))
            for place in absent
        )
        return Bound(expectation, targets, modules, missing)

    def _module(self, name: str) -> Target | str:
        (key,) = filter_keys([name])
        if key not in self._modules:
            return name
        short = self._modules[key].lower()
        return Target(name, module=short if short in self._modules else key)

    def _page(self, name: str) -> Target | str:
        key, anchor, heading = self._parts(name)
        if key is None or (anchor and anchor not in self._anchors[key]):
            return name
        if heading and heading not in map(heading_key, self._headings[key]):
            return name
        return Target(name, page=key, anchor=anchor, heading=heading)

    def _parts(self, name: str) -> tuple[str | None, str, str]:
        """Return the key of a target's page, its anchor, and its heading for comparison."""
        place, _, heading = self._suite.page(name).partition(HEADING_SEPARATOR)
        page, _, anchor = place.partition("#")
        return self._pages.get(page_key(page)), unquote(anchor), heading_key(heading)

    def _passage(self, passage: str) -> Target | str:
        if self._passages is None:
            self._passages = self._finder.found()
        chunks = self._passages[passage]
        return Target(passage, chunks=chunks) if chunks else passage

    def _near(self, name: str, expectation: Expectation) -> str:
        self._suggested += 1
        if self._suggested > _SUGGESTIONS or name in expectation.passages:
            return ""
        if name in expectation.modules:
            return nearest(name, sorted(set(self._modules.values()))) or ""
        page = self._suite.page(name).partition(HEADING_SEPARATOR)[0].partition("#")[0]
        key, anchor, heading = self._parts(name)
        if key is not None and heading:
            near = nearest(heading, sorted(self._headings[key]))
            return f"{page}{HEADING_SEPARATOR}{near}" if near else page
        if key is not None:
            near = nearest(anchor, sorted(self._anchors[key]))
            return with_anchor(page, near or "")
        last = page_key(page).rpartition("/")[2]
        namesakes = sorted(known for known in self._pages if known.rpartition("/")[2] == last)
        return namesakes[0] if namesakes else nearest(page_key(page), sorted(self._pages)) or ""


def _distinct(targets: list[Target]) -> tuple[Target, ...]:
    """Drop duplicates, and sections whose whole page is accepted."""
    whole = {target.page for target in targets if target.page and not (target.anchor or target.heading)}
    kept: dict[Target, Target] = {}
    for target in targets:
        if not ((target.anchor or target.heading) and target.page in whole):
            kept.setdefault(replace(target, name=""), target)
    return tuple(kept.values())
