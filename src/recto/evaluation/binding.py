"""Bind a suite to an index: look up every target that it names, in one pass over the chunks.

A question is judged by its finest targets: passages, else pages and sections, else modules. Pages with a
grade count as well as passages. A target that is not in the index is not a failure of retrieval: it is
unmeasured, and reported with the nearest existing name. `lint` reports it without running the suite.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from recto._util.markdown import heading_key
from recto._util.text import filter_keys, nearest, page_key, plural, with_anchor, without_space
from recto.evaluation.measures import Judged
from recto.evaluation.suites import Expectation, Suite, survey
from recto.protocols import Index
from recto.types.search import HEADING_SEPARATOR, Chunk, Filters

_SUGGESTIONS = 50
"""Missing targets that get a suggestion; a suite of another book would take too long."""
_MIN_OVERLAP = 8  # characters that neighbouring chunks share; fewer may be the same by accident

_WORD = re.compile(r"\w{3,}")
_MIN_SHARED_WORDS = 2

_Part = tuple[int, str, str]
"""A chunk's index on its page, its id, and its text without white space."""


def find_passages(passages: Iterable[str], pages: Iterable[list[_Part]]) -> dict[str, frozenset[str]]:
    """Return the ids of the chunks that contain each passage, or a part of it if several chunks share it."""
    needles = {passage: without_space(passage) for passage in passages}
    ids: dict[str, set[str]] = {passage: set() for passage in needles}
    for page in pages:
        for text, spans in _texts(sorted(page)):
            for passage, needle in needles.items():
                first = text.find(needle)
                while first >= 0:
                    last = first + len(needle)
                    ids[passage] |= {id for start, end, id in spans if start < last and end > first}
                    first = text.find(needle, first + 1)
    return {passage: frozenset(chunks) for passage, chunks in ids.items()}


def _texts(parts: list[_Part]) -> Iterator[tuple[str, list[tuple[int, int, str]]]]:
    """Yield the text of a page, with the start and end of each chunk; then neighbours that overlap."""
    text = ""
    spans: list[tuple[int, int, str]] = []
    for number, id, part in parts:
        if spans and number != parts[len(spans) - 1][0] + 1:
            text += "\n"  # a chunk is missing here; no passage contains a line break
        spans.append((len(text), len(text) + len(part), id))
        text += part
    yield text, spans
    for (number, id, part), (following, other, more) in pairwise(parts):
        if following == number + 1 and (overlap := _overlap(part, more)):
            start = len(part) - overlap
            yield part + more[overlap:], [(0, len(part), id), (start, start + len(more), other)]


def _overlap(text: str, following: str) -> int:
    """Return how many characters at the end of a text are the beginning of the following one."""
    start = text.find(following[:_MIN_OVERLAP])
    while start >= 0 and not following.startswith(text[start:]):
        start = text.find(following[:_MIN_OVERLAP], start + 1)
    return len(text) - start if start >= 0 else 0


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
    grade: int = 1

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
        near = f"; the nearest is {self.near!r}" if self.near else ""
        return f"{self.target!r} is not in the index{near}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"id": self.key, "query": self.query, "target": self.target, "nearest": self.near or None}


@dataclass(frozen=True, slots=True)
class Bound:
    """A question with its existing targets, best grade first, and its missing targets."""

    expectation: Expectation
    targets: tuple[Target, ...]
    modules: frozenset[str]
    missing: tuple[Missing, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether the question can be judged: it has a target, and a module if it names one."""
        exists = self.targets and (self.modules or not self.expectation.modules)
        return self.expectation.nothing or bool(exists)

    def judge(self, chunks: Iterable[Chunk]) -> Judged:
        """Return the gain of each result: the grade of a target that no earlier result reached, else 0."""
        open_targets, gains, module = list(self.targets), [], None
        for chunk in chunks:
            if module is None:
                module = not self.modules.isdisjoint(chunk.module_keys)
            reached = next((target for target in open_targets if target.holds(chunk)), None)
            gains.append(0.0 if reached is None else float(reached.grade))
            if reached is not None:
                open_targets.remove(reached)
        ideal = tuple(float(target.grade) for target in self.targets)
        return Judged(tuple(gains), ideal, bool(module) if self.modules else None)


def bind(suite: Suite, index: Index) -> list[Bound]:
    """Look up every target of a suite in one pass over the index."""
    book = _Book(suite, index.scroll())
    return [book.bound(expectation) for expectation in suite.expectations]


def bind_by_name(expectation: Expectation) -> Bound:
    """Accept the modules, pages and passages of a question as they are named, without reading the index."""
    modules = tuple(map(module_target, expectation.modules))
    if expectation.passages:
        targets = tuple(map(passage_target, expectation.passages))
    elif expectation.pages:
        targets = tuple(map(page_target, expectation.pages))
    else:
        targets = modules
    return Bound(expectation, targets, frozenset(target.module for target in modules))


def module_target(name: str) -> Target:
    """Return the target for a module's name."""
    return Target(name, module=filter_keys([name])[0])


def page_target(name: str, *, path_end: bool = False) -> Target:
    """Return the target for a page's URL or path; headings and anchors in the name are ignored."""
    return Target(name, page=page_key(split_target(name)[0]), path_end=path_end)


def split_target(name: str) -> tuple[str, str, str]:
    """Return the page that a suite names, its anchor, and its heading for comparison."""
    address, _, heading = name.partition(HEADING_SEPARATOR)
    page, _, anchor = address.partition("#")
    return page, unquote(anchor), heading_key(heading)


def passage_target(text: str) -> Target:
    """Return the target for a quoted text, whatever its white space and case."""
    return Target(text, text=without_space(text).casefold())


def section_name(chunk: Chunk) -> str:
    """Return the section of a chunk as a suite names it."""
    return with_anchor(page_key(chunk.source) if chunk.source else chunk.page_url, chunk.anchor)


def anchors_of(chunk: Chunk) -> frozenset[str]:
    """Return all anchors of a chunk; an index of an earlier version has at most one."""
    return frozenset(unquote(anchor) for anchor in (chunk.anchor, *chunk.anchors) if anchor)


class _Book:
    """The modules, pages and passages of an index that a suite names.

    A look-up returns the target, or the name that is not in the index.
    """

    def __init__(self, suite: Suite, chunks: Iterable[Chunk]) -> None:
        passages = {passage for expectation in suite.expectations for passage in expectation.passages}
        named = {
            key
            for expectation in suite.expectations
            for name in expectation.pages
            for key in _page_keys(name, expectation.filters)
        }
        self._suggested = 0
        self._modules: dict[str, str] = {}
        self._pages: dict[str, str] = {}
        self._chunks: dict[str, list[Chunk]] = defaultdict(list)
        texts: dict[str, list[_Part]] = defaultdict(list)
        for chunk in chunks:
            for name in chunk.module_keys:
                self._modules.setdefault(name, chunk.module)
            key, path = page_key(chunk.page_url), page_key(chunk.source)
            self._pages[key] = key
            if path:
                self._pages.setdefault(path, key)
            if key in named or path in named:
                self._chunks[key].append(chunk)
            if passages:
                texts[chunk.page_url].append((chunk.chunk_index, chunk.id, without_space(chunk.text)))
        self._passages = find_passages(passages, texts.values())

    def bound(self, expectation: Expectation) -> Bound:
        """Look up the finest targets of a question, and its modules."""
        grades, filters = dict(expectation.grades), expectation.filters
        modules = [self._module(name) for name in expectation.modules]
        looked_up = modules
        if expectation.passages:
            looked_up = [self._passage(passage) for passage in expectation.passages]
            looked_up += [self._page(page, filters) for page in expectation.pages if page in grades]
        elif expectation.pages:
            looked_up = [self._page(page, filters) for page in expectation.pages]
        graded = [replace(target, grade=grades.get(target.name, 1)) for target in _targets(looked_up)]
        missing = [name for name in dict.fromkeys((*looked_up, *modules)) if isinstance(name, str)]
        return Bound(
            expectation,
            _distinct(graded),
            frozenset(target.module for target in _targets(modules)),
            tuple(
                Missing(expectation.key, expectation.query, name, self._near(name, expectation))
                for name in missing
            ),
        )

    def _module(self, name: str) -> Target | str:
        (key,) = filter_keys([name])
        if key not in self._modules:
            return name
        short = self._modules[key].lower()
        return Target(name, module=short if short in self._modules else key)

    def _page(self, name: str, filters: Filters) -> Target | str:
        _, anchor, heading = split_target(name)
        target = Target(name, page=self._key(name, filters), anchor=anchor, heading=heading)
        return target if any(map(target.holds, self._chunks[target.page])) else name

    def _key(self, name: str, filters: Filters) -> str:
        """Return the key of a target's page, or an empty string."""
        return next((self._pages[key] for key in _page_keys(name, filters) if key in self._pages), "")

    def _passage(self, passage: str) -> Target | str:
        chunks = self._passages[passage]
        return Target(passage, chunks=chunks) if chunks else passage

    def _near(self, name: str, expectation: Expectation) -> str:
        self._suggested += 1
        if self._suggested > _SUGGESTIONS or name in expectation.passages:
            return ""
        if name in expectation.modules:
            return nearest(name, sorted(set(self._modules.values()))) or ""
        page, anchor, heading = split_target(name)
        chunks = self._chunks[self._key(name, expectation.filters)]
        if not chunks:
            return nearest_page(page, self._pages)
        sections: dict[str, set[str]] = defaultdict(set)
        for chunk in chunks:
            title = chunk.headings[-1] if chunk.headings else chunk.title
            section = f"{page}{HEADING_SEPARATOR}{title}" if heading else with_anchor(page, chunk.anchor)
            sections[section].update(_WORD.findall(f"{title} {chunk.text}".casefold()))
        similar = _similar_section(sections, f"{heading or anchor} {expectation.query}")
        return similar or nearest(name, sections) or page


def _page_keys(name: str, filters: Filters) -> list[str]:
    """Return the keys that a target's page can have, those of the filters' language and version first."""
    page = split_target(name)[0]
    editions = [f"@{edition}/" for edition in (filters.language, *filters.versions) if edition]
    return [page_key(f"{prefix}{page}") for prefix in ("".join(editions), *editions, "")]


def nearest_page(page: str, keys: Iterable[str]) -> str:
    """Guess a page by its last part, else by its whole name, else by a similar last part."""
    key = page_key(page)
    last_part = key.rpartition("/")[2]
    by_last_part = {name.rpartition("/")[2]: name for name in keys}
    if last_part not in by_last_part:
        if similar := nearest(key, keys):
            return similar
        last_part = nearest(last_part, by_last_part) or ""
    return by_last_part.get(last_part, "")


def _similar_section(sections: dict[str, set[str]], text: str) -> str:
    """Return the section, by its words, that shares most with a text, or an empty string.

    A word counts the more, the fewer sections have it. One shared word may be chance.
    """
    text_words = set(_WORD.findall(text.casefold()))
    counts = Counter(word for words in sections.values() for word in words & text_words)
    rare = {word for word, count in counts.items() if 2 * count <= len(sections)}
    best = max(sections, key=lambda section: sum(1 / counts[word] for word in sections[section] & rare))
    return best if len(sections[best] & rare) >= _MIN_SHARED_WORDS else ""


def _targets(looked_up: Iterable[Target | str]) -> list[Target]:
    return [target for target in looked_up if isinstance(target, Target)]


def _distinct(targets: list[Target]) -> tuple[Target, ...]:
    """Drop duplicates, and sections whose whole page has the same grade or a better one; sort by grade."""
    whole = {
        target.page: target.grade
        for target in targets
        if target.page and not (target.anchor or target.heading)
    }
    kept: dict[Target, Target] = {}
    for target in sorted(targets, key=lambda target: -target.grade):
        if not ((target.anchor or target.heading) and whole.get(target.page, 0) >= target.grade):
            kept.setdefault(replace(target, name="", grade=1), target)
    return tuple(kept.values())


def lint(path: Path, index: Index | None = None) -> dict[str, Any]:
    """Check a suite's file, and look up its targets if there is an index.

    Return the number of its questions, the problems that fail it, and the warnings about what weakens it.
    """
    suite, problems = survey(path)
    warnings = []
    if drafted := sum(expectation.drafted for expectation in suite.expectations):
        total = len(suite.expectations)
        warnings.append(f'Drafts: {drafted} of {plural(total, "question")}; review them and remove "drafted"')
    if index is not None and suite.expectations:
        for question in bind(suite, index):
            position = question.expectation.position
            if question.measured:
                warnings += [
                    f"{position}: {missing}; its other targets still measure it"
                    for missing in question.missing
                ]
            else:
                problems += [f"{position}: UNMEASURED: {missing}" for missing in question.missing]
    return {"questions": len(suite.expectations), "problems": problems, "warnings": warnings}
